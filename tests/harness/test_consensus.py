"""The import of distributions of relay capacity from a Tor consensus."""

from __future__ import annotations

import base64
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.cli import main
from onionlab.commands import import_consensus as command
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.network.consensus import ConsensusError, import_consensus, read_consensus
from onionlab.network.geography import SourceRelay, known_capacities, load_relays
from onionlab.rundir.compose import network_request

from .checkout import REPOSITORY, extended

Relay = tuple[str, int]
RELAYS: list[Relay] = [
    ("Exit Fast Guard Running Valid", 9000),
    ("Exit Running Valid", 128),
    ("BadExit Exit Running Valid", 3),
    ("BadExit Exit Guard Running Valid", 70_000),
    ("Guard Running Valid", 256),
    ("Fast Running Stable Valid", 1),
    ("Running Valid", 0),
    ("Guard Running", 7),
    ("Exit Valid", 8),
]
FLAGS = ("Authority", "BadExit", "Exit", "Fast", "Guard", "Running", "Stable", "Valid")


def document(relays: list[Relay], flavour: str = "ns") -> str:
    microdesc = flavour == "microdesc"
    lines = [f"network-status-version 3{' microdesc' if microdesc else ''}"]
    lines += ["vote-status consensus", "consensus-method 35", "valid-after 2026-07-12 10:00:00"]
    lines += ["known-flags " + " ".join(FLAGS), "contact s and w have to do with relays alone"]
    for number, (flags, weight) in enumerate(relays):
        identity = base64.b64encode(number.to_bytes(20, "big")).decode().rstrip("=")
        digest = "" if microdesc else f"{identity} "
        lines += [f"r relay{number} {identity} {digest}2026-07-12 04:01:55 10.0.0.1 9001 0"]
        lines += [f"m {identity}"] if microdesc else []
        lines += [f"s {flags}", "v Tor 0.4.9.11", f"w Bandwidth={weight}", "p accept 80,443"]
    lines += ["directory-footer", "bandwidth-weights Wbd=0", "directory-signature A B", ""]
    return "\n".join(lines)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with the shipped distributions, in which the command works."""
    monkeypatch.setattr(command, "working_root", lambda: tmp_path)
    (tmp_path / "configs").mkdir()
    for name in ("relay-capacity.yaml", "regions.yaml"):
        (tmp_path / "configs" / name).write_bytes((REPOSITORY / "configs" / name).read_bytes())
    return tmp_path


def written(root: Path, text: str) -> Path:
    path = root / "cached-consensus"
    path.write_text(text)
    return path


@pytest.mark.parametrize("flavour", ["ns", "microdesc"])
@pytest.mark.parametrize("head", ["", "@type network-status-consensus-3 1.0\n"])
def test_flags_decide_the_position(flavour: str, head: str) -> None:
    consensus = read_consensus((head + document(RELAYS, flavour)).encode())
    assert consensus.weights_kb_per_s == {
        "exitguard": (9000,),
        "exit": (128,),
        "guard": (256, 70_000),
        "middle": (1, 3),
    }
    assert (consensus.not_running, consensus.without_weight) == (2, 1)
    assert consensus.valid_after == "2026-07-12 10:00:00"


@given(
    st.lists(st.tuples(st.sets(st.sampled_from(FLAGS)), st.integers(0, 2**32 - 1)), min_size=1),
    st.sampled_from(["ns", "microdesc"]),
)
def test_every_relay_is_somewhere(drawn: list[tuple[set[str], int]], flavour: str) -> None:
    relays = [(" ".join(sorted(flags)), weight) for flags, weight in drawn]
    counted = [w for flags, w in drawn if {"Running", "Valid"} <= flags and w]
    content = document(relays, flavour).encode()
    if not counted:
        with pytest.raises(ConsensusError, match="no relay is running"):
            read_consensus(content)
        return
    consensus = read_consensus(content)
    weights = consensus.weights_kb_per_s
    assert sorted(w for found in weights.values() for w in found) == sorted(counted)
    assert len(counted) + consensus.not_running + consensus.without_weight == len(relays)
    exits = [w for f, w in drawn if {"Exit", "Running", "Valid"} <= f and "BadExit" not in f and w]
    assert sorted([*weights["exit"], *weights["exitguard"]]) == sorted(exits)


def test_other_line_ends_and_compression(root: Path) -> None:
    """Lines may end with CR LF, as in stem's cached-microdesc-consensus_with_carriage_returns."""
    expected = read_consensus(document(RELAYS).encode())
    source = root / "consensus.xz"
    source.write_bytes(lzma.compress(document(RELAYS).replace("\n", "\r\n").encode()))
    assert import_consensus(root, source, "july")[0] == expected
    source.write_bytes(lzma.compress(b"\n" * 2**25))
    with pytest.raises(UserError, match="it holds more than 16 MiB"):
        import_consensus(root, source, "june")


@given(st.integers(0, len(document(RELAYS).encode()) - 1), st.binary(max_size=4))
def test_a_damaged_document_is_read_or_refused(place: int, change: bytes) -> None:
    content = document(RELAYS).encode()
    with pytest.raises(ConsensusError):  # The document is cut.
        read_consensus(content[: min(place, content.index(b"directory-footer"))])
    try:
        consensus = read_consensus(content[:place] + change + content[place + len(change) :])
    except ConsensusError:
        return
    assert any(consensus.weights_kb_per_s.values())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("status-version 3", "status-version 4", 'got "network-status-version 4"'),
        ("vote-status consensus", "vote-status vote", 'got "vote"'),
        ("valid-after 2026", "valid-after now", "line valid-after is missing"),
        ("w Bandwidth=128\n", "", "no line `w`"),
        ("w Bandwidth=128", "w Bandwidth=128\nw Bandwidth=1", "duplicate line `w`"),
        ("w Bandwidth=128", "w Bandwidth=4294967296", "line 15: expected one Bandwidth="),
        ("w Bandwidth=128", "w Measured=128", "line 15: expected one Bandwidth="),
        (
            "relay1 AAAAAAAAAAAAAAAAAAAAAAAAAAE",
            "relay1 AAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "duplicate relay",
        ),
        ("r relay1 ", "r ", "`r` is truncated or damaged"),
        ("p accept", "p acc\udcffpt", "not text in UTF-8"),
    ],
)
def test_damage_is_reported_with_its_line(old: str, new: str, problem: str) -> None:
    assert old in document(RELAYS)
    content = document(RELAYS).replace(old, new, 1).encode(errors="surrogateescape")
    with pytest.raises(ConsensusError) as caught:
        read_consensus(content)
    assert problem in str(caught.value)


def test_relays_can_be_drawn_from_it(root: Path) -> None:
    source = written(root, document(RELAYS))
    _, path = import_consensus(root, source, "july")
    assert path == root / "configs" / "relay-capacity" / "july.yaml"
    assert "july-guard" in (known_capacities(root) or ())
    # One kB/s is exactly 8000 bit/s.
    assert load_relays(root, "july-guard") == (SourceRelay(256 * 8000), SourceRelay(70_000 * 8000))
    assert load_relays(root, "july-middle") == (SourceRelay(8000), SourceRelay(24_000))
    assert load_relays(root, "middle") == load_relays(REPOSITORY, "middle")
    before = path.read_bytes()
    import_consensus(root, source, "july")
    assert path.read_bytes() == before


def test_an_experiment_can_name_it(root: Path) -> None:
    import_consensus(root, written(root, document(RELAYS)), "july")
    relays = {role: {"count": 2, "capacity": f"july-{role}"} for role in ("guard", "middle")}
    path = extended(root, "minimal-tor", network={"relays": relays})
    settings = load(str(path), root=root).levels["one"].settings
    assert network_request(root, settings).relays["guard"].source == load_relays(root, "july-guard")
    path.write_text(path.read_text().replace("july-middle", "june-middle"))
    with pytest.raises(UserError, match='unknown capacity distribution "june-middle"'):
        load(str(path), root=root)


@pytest.mark.parametrize("name", ["", "July", "..", "a" * 51, "a\n"])
def test_invalid_names_are_refused(root: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not a valid name for a distribution"):
        import_consensus(root, written(root, document(RELAYS)), name)
    assert not (root / "configs" / "relay-capacity").exists()


def test_a_name_cannot_be_used_twice(root: Path) -> None:
    import_consensus(root, written(root, document(RELAYS)), "july")
    with pytest.raises(UserError, match=r"july-\* already"):
        import_consensus(root, written(root, document(RELAYS[:5])), "july")
    own = root / "configs" / "relay-capacity" / "mine.yaml"
    own.write_text("distributions:\n  aug-exit: [100]\n")
    with pytest.raises(UserError, match=r"aug-\* already"):
        import_consensus(root, written(root, document(RELAYS)), "aug")


def test_the_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(root, document(RELAYS[:2]))
    assert main(["import-consensus", "--name", "july", str(source)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  july-exitguard: 1 relays, 98.6% of all weight" in lines
    assert "  no july-guard: no relay takes this position" in lines
    assert lines[-1] == str(root / "configs" / "relay-capacity" / "july.yaml")
    source.write_text("nothing")
    assert main(["import-consensus", "--name", "june", str(source)]) == 2
    assert "not a valid consensus: line 1" in capsys.readouterr().err
    assert main(["import-consensus", "--name", "june", str(root / "none")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
