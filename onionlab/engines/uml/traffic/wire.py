"""The messages of TGen 1.1.2's protocol (version 2.0), except payload.

A client sends a command line. Its Markov model follows as GraphML, unless the line contains the
model's path. The server answers with a response line. Then each side sends its payload, which
repeats one letter. If the command gives the payload's size, each side then sends a line with the
payload's MD5 sum. A side that has received the other side's MD5 line sends a closing line.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

from .action_graph import StreamOptions

_PASSWORD = b"T8nNx9L95LATtckJkR5n"
AUTH_BYTES = _PASSWORD + b" "
_PROTOCOL_VERSION = "2.0"
FOOTER = b"FIN\n"

PAYLOAD_LETTER = b"x"
"""The letter that the driver's payload repeats. TGen chooses a random letter for every 32 KiB. The
difference has no effect, because Tor encrypts the payload.
"""


@dataclass(frozen=True)
class Command:
    """A client's request as its server sees it.

    receive_bytes, send_bytes: the payload sizes that the server receives and sends; 0 if the model
    determines the size. model_path: the model's path, or None if the model's text follows the
    command line. model_bytes: the size of this text.
    """

    hostname: str
    transfer_id: str
    receive_bytes: int
    send_bytes: int
    model_name: str
    model_bytes: int
    model_seed: int
    model_path: str | None = None


def command(hostname: str, options: StreamOptions, model_seed: int) -> bytes:
    """Return a client's first message, with the text of its model or the model's path."""
    model = options.packet_model
    line = (
        f" PROTOCOL_VERSION={_PROTOCOL_VERSION} HOSTNAME={hostname} TRANSFER_ID={options.id}"
        f" SEND_SIZE={options.send_bytes} RECV_SIZE={options.recv_bytes}"
        f" MODEL_NAME={model.name} MODEL_SEED={model_seed}"
    )
    if options.packet_model_path is not None:
        line += f" MODEL_MODE=path MODEL_PATH={options.packet_model_path}\n"
        return _PASSWORD + line.encode()
    line += f" MODEL_MODE=graphml MODEL_SIZE={len(model.text)}\n"
    return _PASSWORD + line.encode() + model.text


def response(hostname: str) -> bytes:
    """Return a server's answer to a command."""
    line = f" PROTOCOL_VERSION={_PROTOCOL_VERSION} HOSTNAME={hostname} CODE=NONE\n"
    return _PASSWORD + line.encode()


@functools.cache
def checksum_line(size: int) -> bytes:
    """Return the line with the MD5 sum of a payload of `size` bytes that this driver sends."""
    digest = hashlib.md5(usedforsecurity=False)
    block = PAYLOAD_LETTER * 2**16
    for _ in range(size // len(block)):
        digest.update(block)
    digest.update(block[: size % len(block)])
    return f"MD5 {digest.hexdigest()}\n".encode()


def parse_response(line: bytes) -> str:
    """Return the server's host name from its response line.

    line: the line after its password. Raises KeyError or ValueError if it is not supported.
    """
    pairs = _pairs(line)
    if pairs["CODE"] != "NONE":
        raise ValueError(line)
    return pairs["HOSTNAME"]


def parse_command(line: bytes) -> Command:
    """Parse a client's command line.

    line: the line after its password. Raises KeyError or ValueError if it is not supported.
    """
    pairs = _pairs(line)
    by_path = pairs["MODEL_MODE"] == "path"
    return Command(
        hostname=pairs["HOSTNAME"],
        transfer_id=pairs["TRANSFER_ID"],
        receive_bytes=int(pairs["SEND_SIZE"]),
        send_bytes=int(pairs["RECV_SIZE"]),
        model_name=pairs["MODEL_NAME"],
        model_bytes=0 if by_path else int(pairs["MODEL_SIZE"]),
        model_seed=int(pairs["MODEL_SEED"]),
        model_path=pairs["MODEL_PATH"] if by_path else None,
    )


def _pairs(line: bytes) -> dict[str, str]:
    parts = line.decode("ascii", "replace").split(" ")
    pairs = {key: value for key, equals, value in (p.partition("=") for p in parts) if equals}
    if pairs["PROTOCOL_VERSION"] != _PROTOCOL_VERSION:
        raise ValueError(line)
    return pairs
