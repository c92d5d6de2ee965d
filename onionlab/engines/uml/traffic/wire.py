"""The messages of TGen 1.1.2's protocol (version 2.0), except payload.

A client sends a command line and, immediately after it, its Markov model as GraphML. The server
answers with a response line. Then each side sends its payload, a line with the payload's MD5 sum,
and a closing line once the other side's MD5 line has arrived. Payload repeats one letter.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

from .graphml import igraph_text
from .markov_model import INTERNAL_PACKET_MODEL, MarkovModel
from .states import StreamFault

_PASSWORD = b"T8nNx9L95LATtckJkR5n"
AUTH_BYTES = _PASSWORD + b" "
_PROTOCOL_MAJOR = "2"
_PROTOCOL_VERSION = "2.0"
FOOTER = b"FIN\n"

PAYLOAD_LETTER = b"x"
"""TGen draws a letter for every 32 KiB, but Tor encrypts it anyway."""

MAX_MODEL_BYTES = 10 * 1024 * 1024

MODEL_NAME = INTERNAL_PACKET_MODEL.name

# The text has igraph's format, because its length is part of the load.
MODEL = igraph_text(INTERNAL_PACKET_MODEL.graph)


@dataclass(frozen=True)
class Command:
    """A client's request as its server sees it.

    receive_bytes, send_bytes: payload sizes. 0: until the model ends; None: not even a checksum is
    exchanged. model_path: the server's path of the model, or None if its text of model_bytes
    follows.
    """

    hostname: str
    transfer_id: str
    receive_bytes: int | None
    send_bytes: int | None
    model_name: str
    model_bytes: int
    model_seed: int
    model_path: str | None = None


class HeaderError(Exception):
    """A command or response that TGen rejects."""

    def __init__(self, fault: StreamFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def command(
    *,
    hostname: str,
    transfer_id: str,
    send_bytes: int,
    recv_bytes: int,
    model_seed: int,
    model: MarkovModel = INTERNAL_PACKET_MODEL,
    model_path: str | None = None,
) -> bytes:
    """Return a client's first message, with its model or the model's path."""
    line = (
        f" PROTOCOL_VERSION={_PROTOCOL_VERSION} HOSTNAME={hostname} TRANSFER_ID={transfer_id}"
        f" SEND_SIZE={send_bytes} RECV_SIZE={recv_bytes}"
        f" MODEL_NAME={model.name} MODEL_SEED={model_seed}"
    )
    if model_path is not None:
        return _PASSWORD + f"{line} MODEL_MODE=path MODEL_PATH={model_path}\n".encode()
    text = MODEL if model is INTERNAL_PACKET_MODEL else model.text
    return _PASSWORD + f"{line} MODEL_MODE=graphml MODEL_SIZE={len(text)}\n".encode() + text


def response(hostname: str, fault: StreamFault = StreamFault.NONE) -> bytes:
    """Return a server's answer to a command; fault: the error in the command."""
    line = f" PROTOCOL_VERSION={_PROTOCOL_VERSION} HOSTNAME={hostname} CODE={fault}\n"
    return _PASSWORD + line.encode()


@functools.cache
def payload_md5(size: int) -> str:
    """Return the MD5 sum of a payload that this driver sends."""
    digest = hashlib.md5(usedforsecurity=False)
    block = PAYLOAD_LETTER * 2**16
    for _ in range(size // len(block)):
        digest.update(block)
    digest.update(block[: size % len(block)])
    return digest.hexdigest()


def checksum_line(size: int) -> bytes:
    """Return the line that follows a payload of `size` bytes."""
    return f"MD5 {payload_md5(size)}\n".encode()


def parse_response(line: bytes) -> str:
    """Return the server's host name from the rest of its line. Raises HeaderError."""
    pairs = _pairs(line)
    if not {"PROTOCOL_VERSION", "HOSTNAME", "CODE"} <= pairs.keys():
        raise HeaderError(StreamFault.HEADER_INCOMPLETE)
    if pairs["CODE"].upper() != "NONE":
        raise HeaderError(StreamFault.HEADER)
    return pairs["HOSTNAME"]


def parse_command(line: bytes) -> Command:
    """Parse the rest of a client's command line. Raises HeaderError."""
    pairs = _pairs(line)
    mode = pairs.get("MODEL_MODE", "graphml").lower()
    if not mode.startswith(("path", "grap")):
        raise HeaderError(StreamFault.HEADER_MODEL_MODE)
    by_path = mode.startswith("path")
    model_bytes = 0
    if "MODEL_SIZE" in pairs:
        model_bytes = _leading_integer(pairs["MODEL_SIZE"])
        if not 0 < model_bytes <= MAX_MODEL_BYTES:
            raise HeaderError(StreamFault.HEADER_MODEL_SIZE)
    elif not by_path:
        # TGen reports this error even if other keys are missing, too.
        raise HeaderError(StreamFault.HEADER_MODEL_SIZE)
    required = {"PROTOCOL_VERSION", "HOSTNAME", "TRANSFER_ID", "SEND_SIZE", "RECV_SIZE"}
    required |= {"MODEL_NAME", "MODEL_SEED", "MODEL_MODE"}
    if by_path:
        required.add("MODEL_PATH")
    if not required <= pairs.keys():
        raise HeaderError(StreamFault.HEADER_INCOMPLETE)
    return Command(
        hostname=pairs["HOSTNAME"],
        transfer_id=pairs["TRANSFER_ID"],
        receive_bytes=_size(pairs["SEND_SIZE"]),
        send_bytes=_size(pairs["RECV_SIZE"]),
        model_name=pairs["MODEL_NAME"],
        model_bytes=0 if by_path else model_bytes,
        model_seed=_leading_integer(pairs["MODEL_SEED"]) % 2**32,
        model_path=pairs["MODEL_PATH"] if by_path else None,
    )


def _pairs(line: bytes) -> dict[str, str]:
    pairs = {}
    for part in line.decode("ascii", "replace").split(" "):
        key, equals, value = part.partition("=")
        if not equals:
            continue
        if key.upper() == "PROTOCOL_VERSION":
            major, dot, _ = value.partition(".")
            if not dot:
                continue
            if major != _PROTOCOL_MAJOR:
                raise HeaderError(StreamFault.HEADER_VERSION)
        pairs[key.upper()] = value
    return pairs


def _size(value: str) -> int | None:
    return None if value.startswith("~") else _leading_integer(value)


def _leading_integer(value: str) -> int:
    digits = value[: len(value) - len(value.lstrip("0123456789"))]
    return int(digits) if digits else 0
