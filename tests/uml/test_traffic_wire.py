"""TGen's messages, byte for byte."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.engines.uml.traffic import wire

COMMAND = (
    b"PROTOCOL_VERSION=2.0 HOSTNAME=web1 TRANSFER_ID=stream SEND_SIZE=1000 RECV_SIZE=327680 "
    b"MODEL_NAME=internal-packet-model MODEL_SEED=1963204280 MODEL_MODE=graphml MODEL_SIZE=1970"
)
RESPONSE = b"PROTOCOL_VERSION=2.0 HOSTNAME=server1 CODE=NONE"


def test_a_command_is_what_tgen_sends() -> None:
    message = wire.command(
        hostname="web1",
        transfer_id="stream",
        send_bytes=1000,
        recv_bytes=327680,
        model_seed=1963204280,
    )
    line, newline, model = message.partition(b"\n")
    assert line == b"T8nNx9L95LATtckJkR5n " + COMMAND
    assert newline
    # TGen 1.1.2's own log: "Successfully wrote graph to buffer of size 1970".
    assert len(model) == 1970
    # MD5 of the model as TGen 1.1.2 with igraph 0.10.2 sent it.
    assert hashlib.md5(model).hexdigest() == "e64a68a112f324d71f0dc044d9acda2c"


def test_a_response_is_what_tgen_sends() -> None:
    assert wire.response("server1") == b"T8nNx9L95LATtckJkR5n " + RESPONSE + b"\n"


def test_a_command_is_understood() -> None:
    assert wire.parse_command(COMMAND) == wire.Command(
        hostname="web1",
        transfer_id="stream",
        receive_bytes=1000,
        send_bytes=327680,
        model_name="internal-packet-model",
        model_bytes=1970,
        model_seed=1963204280,
    )
    assert wire.parse_response(RESPONSE) == "server1"


def test_a_tilde_stands_for_nothing_at_all() -> None:
    asked = wire.parse_command(COMMAND.replace(b"SEND_SIZE=1000", b"SEND_SIZE=~"))
    assert asked.receive_bytes is None


def test_the_internal_model_may_come_by_name() -> None:
    line = COMMAND.replace(
        b"MODEL_MODE=graphml MODEL_SIZE=1970", b"MODEL_MODE=path MODEL_PATH=internal-packet-model"
    )
    asked = wire.parse_command(line)
    assert (asked.model_bytes, asked.model_path) == (0, "internal-packet-model")


def test_a_model_may_come_by_its_path() -> None:
    line = wire.command(
        hostname="web1",
        transfer_id="stream",
        send_bytes=0,
        recv_bytes=0,
        model_seed=2**32 - 1,
        model_path="../conf/packet.graphml",
    )
    assert line.endswith(b" MODEL_MODE=path MODEL_PATH=../conf/packet.graphml\n")
    asked = wire.parse_command(line.removeprefix(wire.AUTH_BYTES).strip())
    assert asked.model_path == "../conf/packet.graphml"
    assert (asked.send_bytes, asked.receive_bytes, asked.model_seed) == (0, 0, 2**32 - 1)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"VERSION=2.0", b"VERSION=1.9", "HEADER_VERSION"),
        (b"VERSION=2.0", b"VERSION=2", "HEADER_INCOMPLETE"),
        (b"PROTOCOL_VERSION=2.0 ", b"", "HEADER_INCOMPLETE"),
        (b"HOSTNAME=web1 ", b"", "HEADER_INCOMPLETE"),
        (b"TRANSFER_ID=stream ", b"", "HEADER_INCOMPLETE"),
        (b" MODEL_SIZE=1970", b"", "HEADER_MODELSIZE"),
        (b"MODEL_SIZE=1970", b"MODEL_SIZE=0", "HEADER_MODELSIZE"),
        (b"MODEL_SIZE=1970", b"MODEL_SIZE=10485761", "HEADER_MODELSIZE"),
        (b"=graphml", b"=carrier-pigeon", "HEADER_MODELMODE"),
        (b"graphml MODEL_SIZE=1970", b"path", "HEADER_INCOMPLETE"),
    ],
)
def test_bad_commands_have_tgens_codes(old: bytes, new: bytes, code: str) -> None:
    assert old in COMMAND
    with pytest.raises(wire.HeaderError) as caught:
        wire.parse_command(COMMAND.replace(old, new))
    assert caught.value.fault == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (RESPONSE.replace(b"CODE=NONE", b"CODE=AUTH"), "HEADER"),
        (RESPONSE.replace(b" CODE=NONE", b""), "HEADER_INCOMPLETE"),
        (RESPONSE.replace(b"2.0", b"3.0"), "HEADER_VERSION"),
        (b"", "HEADER_INCOMPLETE"),
    ],
)
def test_bad_responses_have_tgens_codes(line: bytes, code: str) -> None:
    with pytest.raises(wire.HeaderError) as caught:
        wire.parse_response(line)
    assert caught.value.fault == code


@given(st.binary(max_size=300))
def test_any_line_is_understood_or_refused(line: bytes) -> None:
    with contextlib.suppress(wire.HeaderError):
        wire.parse_command(line)
    with contextlib.suppress(wire.HeaderError):
        wire.parse_response(line)


@pytest.mark.parametrize("size", [1, 1000, 65535, 65536, 65537, 327680])
def test_the_checksum_is_that_of_the_payload(size: int) -> None:
    digest = hashlib.md5(wire.PAYLOAD_LETTER * size).hexdigest()
    assert wire.checksum_line(size) == b"MD5 " + digest.encode() + b"\n"
