"""Record the golden logs with a real tgen binary on loopback.

    python record_golden.py PATH_TO_TGEN OUTPUT_DIRECTORY

TGENHOSTNAME names each process, so the logs do not contain the machine's name. A small SOCKS5 proxy
between client and server shapes the traffic. The proxy can be slow, fall silent after some bytes,
never answer, refuse, or hang up. The times differ between recordings, so the tests compare times
with golden/tgentools.json, which expect_golden.py writes. Outcomes and sizes are in the tests'
code.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import struct
import sys
from pathlib import Path

import networkx as nx

SERVER_PORT = 18888


class Proxy:
    """A SOCKS5 proxy with configurable errors."""

    def __init__(
        self,
        bytes_per_s: float | None = None,
        silent_after: int | None = None,
        answer: str = "accept",
        reply_delay_s: float = 0.0,
        close_after: int | None = None,
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self.silent_after = silent_after
        self.answer = answer
        self.reply_delay_s = reply_delay_s
        self.close_after = close_after
        self.port = 0

    async def start(self) -> None:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(2)
            await reader.read(1)
            writer.write(b"\x05\x00")
            head = await reader.readexactly(4)
            if head[3] == 1:
                await reader.readexactly(4)
            else:
                await reader.readexactly((await reader.readexactly(1))[0])
            await reader.readexactly(2)
            await asyncio.sleep(self.reply_delay_s)
            if self.answer == "silent":
                await asyncio.sleep(3600)
            code = 0 if self.answer == "accept" else 4
            writer.write(struct.pack("!BBBBIH", 5, code, 0, 1, 0x7F000001, SERVER_PORT))
            if code:
                writer.close()
                return
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", SERVER_PORT)
            await asyncio.gather(
                self.copy(reader, up_writer, None, None),
                self.copy(up_reader, writer, self.bytes_per_s, self.silent_after),
            )
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()

    async def copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        bytes_per_s: float | None,
        silent_after: int | None,
    ) -> None:
        passed = 0
        while data := await reader.read(8192):
            if bytes_per_s:
                await asyncio.sleep(len(data) / bytes_per_s)
            writer.write(data)
            await writer.drain()
            passed += len(data)
            if silent_after is not None and passed >= silent_after:
                await asyncio.sleep(3600)
            if bytes_per_s and self.close_after is not None and passed >= self.close_after:
                break
        writer.close()


async def client(
    tgen: str,
    out: Path,
    name: str,
    start: dict[str, str],
    stream: dict[str, str],
    count: int,
    *,
    kill_after_s: float | None = None,
    pause: str = "1 second",
    parallel: int = 1,
) -> None:
    """Run one client to its end, or kill it after ``kill_after_s``. Its stdout is the log."""
    streams = [f"stream{i}" for i in range(parallel)] if parallel > 1 else ["stream"]
    graph: nx.DiGraph[str] = nx.DiGraph()
    nodes = {
        "start": {"loglevel": "message", "heartbeat": "1 second", "time": "1 second", **start},
        **dict.fromkeys(streams, stream),
        "pause": {"time": pause},
        "end": {"count": str(count)},
    }
    edges = [("start", node) for node in streams] + [(node, "end") for node in streams]
    graph.add_nodes_from(nodes.items())
    graph.add_edges_from([*edges, ("end", "pause"), ("pause", "start")])
    path = out / f"{name}.graphml"
    nx.write_graphml(graph, path)
    log = out / f"{name}.log"
    with log.open("wb") as stdout:
        process = await asyncio.create_subprocess_exec(
            tgen, path.name, stdout=stdout, cwd=out, env={**os.environ, "TGENHOSTNAME": name}
        )
        try:
            await asyncio.wait_for(process.wait(), kill_after_s)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
    path.unlink()


async def main(tgen: str, out: Path) -> None:
    server_graph = out / "server.graphml"
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("start", serverport=str(SERVER_PORT), heartbeat="1 second")
    nx.write_graphml(graph, server_graph)

    async def server() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            tgen,
            str(server_graph),
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, "TGENHOSTNAME": "server1"},
        )

    running = await server()
    await asyncio.sleep(0.5)
    proxies = {
        "good": Proxy(bytes_per_s=800_000, reply_delay_s=0.2),
        "slow": Proxy(bytes_per_s=40_000, reply_delay_s=0.2),
        "silent": Proxy(silent_after=65536),
        "mute": Proxy(answer="silent"),
        "refuse": Proxy(answer="refuse"),
        "close": Proxy(bytes_per_s=400_000, close_after=65536),
    }
    for proxy in proxies.values():
        await proxy.start()

    def start(proxy: str | None, **more: str) -> dict[str, str]:
        options = {"peers": f"localhost:{SERVER_PORT}", **more}
        if proxy:
            port = proxies[proxy].port if proxy in proxies else int(proxy)
            options["socksproxy"] = f"localhost:{port}"
        return options

    web = {"sendsize": "1 kib", "recvsize": "320 kib"}
    big = {"sendsize": "1 kib", "recvsize": "1 mib"}
    await asyncio.gather(
        client(tgen, out, "web-success", start("good"), web, 4),
        client(tgen, out, "web-direct", start(None), web, 2),
        client(tgen, out, "web-timeout", start("slow", timeout="3 seconds"), web, 2),
        client(tgen, out, "web-timeout-nobyte", start("mute", timeout="2 seconds"), web, 2),
        client(tgen, out, "web-stall", start("silent", stallout="2 seconds"), web, 2),
        client(tgen, out, "web-stall-nobyte", start("mute", stallout="2 seconds"), web, 1),
        client(tgen, out, "web-proxy-refused", start("1"), web, 3, kill_after_s=5),
        client(tgen, out, "web-proxy-status", start("refuse"), web, 2),
        client(tgen, out, "bulk-open", start("good"), big, 9, kill_after_s=7.3),
        client(
            tgen, out, "bulk-parallel-open", start("good"), big, 9, kill_after_s=4.6, parallel=3
        ),
        client(tgen, out, "web-closed", start("close"), web, 2),
        client(
            tgen, out, "idle", {"time": "60 seconds", **start("good")}, web, 1, kill_after_s=3.2
        ),
    )
    await client(tgen, out, "bulk-info", start("good", loglevel="info"), big, 3, kill_after_s=5.2)
    running.kill()
    await running.wait()
    server_graph.unlink()
    info = out / "bulk-info.log"
    with gzip.GzipFile(str(info) + ".gz", "wb", mtime=0) as packed:
        packed.write(info.read_bytes())
    info.unlink()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
