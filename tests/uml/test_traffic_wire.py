"""The driver's messages equal those of TGen, byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.engines.uml.traffic import wire
from onionlab.engines.uml.traffic.markov_model import INTERNAL_PACKET_MODEL

from .traffic_support import OPTIONS

COMMAND = (
    b"PROTOCOL_VERSION=2.0 HOSTNAME=web1 TRANSFER_ID=stream SEND_SIZE=1000 RECV_SIZE=327680 "
    b"MODEL_NAME=internal-packet-model MODEL_SEED=1963204280 MODEL_MODE="
)


@pytest.mark.parametrize("path", [None, "../conf/packet.graphml"])
def test_a_command_equals_that_of_tgen(path: str | None) -> None:
    options = replace(OPTIONS, send_bytes=1000, recv_bytes=327680, packet_model_path=path)
    message = wire.command("web1", options, 1963204280)
    line, _, model = message.partition(b"\n")
    mode = b"graphml MODEL_SIZE=1970" if path is None else b"path MODEL_PATH=../conf/packet.graphml"
    assert line == wire.AUTH_BYTES + COMMAND + mode
    assert model == (INTERNAL_PACKET_MODEL.text if path is None else b"")
    assert wire.parse_command(COMMAND + mode) == wire.Command(
        hostname="web1",
        transfer_id="stream",
        receive_bytes=1000,
        send_bytes=327680,
        model_name="internal-packet-model",
        model_bytes=1970 if path is None else 0,
        model_seed=1963204280,
        model_path=path,
    )


def test_a_response_equals_that_of_tgen() -> None:
    line = b"PROTOCOL_VERSION=2.0 HOSTNAME=server1 CODE=NONE"
    assert wire.response("server1") == wire.AUTH_BYTES + line + b"\n"
    assert wire.parse_response(line) == "server1"


@given(st.binary(max_size=300))
def test_any_line_is_parsed_or_rejected(line: bytes) -> None:
    for parse in (wire.parse_command, wire.parse_response):
        with contextlib.suppress(KeyError, ValueError):
            parse(line)


@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 327680])
def test_the_checksum_is_that_of_the_payload(size: int) -> None:
    digest = hashlib.md5(wire.PAYLOAD_LETTER * size).hexdigest()
    assert wire.checksum_line(size) == b"MD5 " + digest.encode() + b"\n"
