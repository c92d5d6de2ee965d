"""Readers of parts of tornettools' directories: the values they return, and their errors."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onionlab.errors import UserError
from onionlab.tornet.certificates import read_authority_certificate, signing_key_expires_unix_s
from onionlab.tornet.host_files import FileError
from onionlab.tornet.reading import read_tornet
from onionlab.tornet.shadow_config import CONFIGURATION
from onionlab.tornet.shadow_units import MAX_AMOUNT, rate_bit_per_s, time_ms, time_ns
from onionlab.tornet.tgen_graph import read_tgen_graph
from onionlab.tornet.torrc_options import Options, parse_memory, read_lines

from .tiny import HOSTS, TinyTornet, ed25519_certificate, graphml

CERTIFICATE = TinyTornet().files[f"{HOSTS}/alice/keys/authority_certificate"]


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [("5 ms", 5_000_000), ("5us", 5_000), ("2 mins", 120 * 10**9), ("0 ns", 0)],
)
def test_times(text: object, expected_ns: int) -> None:
    assert time_ns(text) == expected_ns


@pytest.mark.parametrize("text", ["5.5 ms", -1, True, None, "5 parsecs", "1 MS", "9" * 30])
def test_invalid_times(text: object) -> None:
    with pytest.raises(ValueError, match="expected a time of Shadow"):
        time_ns(text)


def test_milliseconds_are_whole() -> None:
    assert time_ms("2000 us") == 2
    with pytest.raises(ValueError, match='whole milliseconds, got "1500 us"'):
        time_ms("1500 us")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000000 kilobit", 10**9), ("10 Mbit", 10**7), ("1 Kibit", 1024), ("8 bits", 8)],
)
def test_rates(text: str, expected: int) -> None:
    assert rate_bit_per_s(text) == expected


@pytest.mark.parametrize("text", ["0 bit", "10", 10, "10 MB", "10 mbit", None])
def test_invalid_rates(text: object) -> None:
    with pytest.raises(ValueError, match="expected a bandwidth of Shadow"):
        rate_bit_per_s(text)


values = st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans()


@given(values)
def test_any_quantity_is_read_or_refused(value: object) -> None:
    for read in (time_ns, rate_bit_per_s):
        with contextlib.suppress(ValueError):
            assert 0 <= read(value) <= MAX_AMOUNT


def parse_options(files: dict[str, str], path: str = "torrc") -> Options:
    def read(one: str) -> str:
        if one not in files:
            raise FileError(f"{one} is missing")
        return files[one]

    return Options(tuple((name, value) for _, name, value in read_lines(path, read)))


def test_options_of_included_files_come_where_they_are_included() -> None:
    options = parse_options(
        {
            "torrc": 'ORPort 1 # first\n%include "common"\n\n# ORPort 3\n+Log info stdout\nBare\n',
            "common": 'orport 2\nLog notice \\\n  stdout\nExitPolicy "reject *:*" \n',
        }
    )
    assert options.all("ORPort") == ["1", "2"]
    assert options.get("orport") == "2"
    assert options.all("Log") == ["notice stdout", "info stdout"]
    assert options.get("ExitPolicy") == '"reject *:*"'
    assert options.get("Bare") == ""
    assert options.get("SocksPort") is None


def test_a_sign_without_an_option_is_ignored() -> None:
    assert parse_options({"torrc": "/\n+\nORPort 1\n"}).pairs == (("ORPort", "1"),)


def test_files_that_include_each_other_end() -> None:
    with pytest.raises(FileError, match="more than 100 files"):
        parse_options({"torrc": "%include torrc\n%include torrc\n"})


@given(st.text() | st.text('%include \nx#\\"', max_size=60))
def test_any_torrc_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(FileError):
        assert all(name for name, _ in parse_options({"torrc": text}).pairs)


@pytest.mark.parametrize(
    ("text", "in_bytes"),
    [
        ("22710724", 22710724),
        ("1 MBits", 2**17),
        (".5gb", 2**29),
        ("3 terabit", 3 * 2**37),
        ("1.5e3 KB", 1_536_000),
        ("0.1 m", 104_857),
    ],
)
def test_sizes_are_parsed_like_in_tor(text: str, in_bytes: int) -> None:
    """config_parse_memunit() of Tor 0.4.9.11 returns these values."""
    assert parse_memory(text) == in_bytes


@pytest.mark.parametrize("text", ["fast", "1 MBit/s", "1e3", "-5 KB", "99999999 TB", "1 k", ""])
def test_a_size_that_tor_refuses(text: str) -> None:
    with pytest.raises(FileError, match="is not a number of bytes as Tor reads it"):
        parse_memory(text)


def test_properties_of_a_graph() -> None:
    graph = read_tgen_graph(graphml({"start": {"peers": "a:80, b:8080", "serverport": " "}}))
    assert graph.peers() == {"a", "b"}
    assert (graph.is_server, graph.has_models, graph.is_model) == (False, False, False)
    # If a vertex names no model, TGen uses an internal one.
    assert read_tgen_graph(graphml({"start": {}, "traffic": {}})).has_models


def test_certificates() -> None:
    text = CERTIFICATE.decode()
    year_s = 365 * 86400
    begin_s = 944_006_401
    assert read_authority_certificate(text) == ("AB" * 20, begin_s, begin_s + year_s)
    text = text.replace("expires 2001-12-01 00:00:01", "expires 2000-01-01 00:00:00")
    assert read_authority_certificate(text)[1:] == (begin_s, 946_684_800)
    assert signing_key_expires_unix_s(ed25519_certificate(7)) == 7 * 3600


READERS: list[tuple[Callable[[bytes], object], bytes]] = [
    (lambda content: read_tgen_graph(content).peers(), graphml({"traffic": {"peers": "a:80"}})),
    (lambda content: read_authority_certificate(content.decode(errors="replace")), CERTIFICATE),
    (signing_key_expires_unix_s, ed25519_certificate(1)),
]


@pytest.mark.parametrize(("read", "whole"), READERS)
@given(content=st.binary(max_size=200), data=st.data())
def test_any_content_is_read_or_refused(
    read: Callable[[bytes], object], whole: bytes, content: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(whole)))
    for one in (content, whole[:at] + content[:8] + whole[at + 3 :]):
        with contextlib.suppress(FileError, ValueError):
            read(one)


yaml_parts = st.sampled_from(
    [*rb'~ [] {} -1 .inf 1e999 "\ud800" "\0" *x &x : !! \' x'.split(), b"\n", b": ", b"<<: 1"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_damaged_directories_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    """One file is damaged. In half of the cases, it is Shadow's configuration."""
    written = tmp_path / "tornet"
    shutil.rmtree(written, ignore_errors=True)
    TinyTornet().write(written)
    paths = sorted(
        path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file()
    )
    path = written / data.draw(st.sampled_from([*[CONFIGURATION] * len(paths), *paths]))
    content = path.read_bytes()
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(begin, min(len(content), begin + 40)))
        new = data.draw(yaml_parts | st.binary(max_size=8))
        content = content[:begin] + new + content[end:]
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        read_tornet(written)


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\0b"', "[1, {a: .5e999}]"])
def test_strange_values_of_options_are_reported(tmp_path: Path, text: str) -> None:
    """A lone surrogate, a NUL or a list with infinity is an error that names its line."""
    written = TinyTornet().write(tmp_path / "tornet")
    file = written / CONFIGURATION
    file.write_text(f"experimental: {{a: {text}}}\n{file.read_text()}")
    with pytest.raises(UserError, match=r":1: (broken YAML|experimental\.a: )"):
        read_tornet(written)
