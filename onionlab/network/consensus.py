"""Read relay weights from a Tor network-status consensus as distributions of capacity.

The format is specified in dir-spec, "Vote and consensus status document formats"; both flavours are
supported. Three lines of each relay are used: `r` (its identity), `s` (flags) and `w`
(`Bandwidth=`, in kB/s).
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.compressed import read_content
from analysis.formats.durable import write_whole
from onionlab.errors import UserError
from onionlab.network.geography import (
    CAPACITY_FOLDER,
    distribution_names,
    known_capacities,
)
from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.reading import MAX_FILE_BYTES
from onionlab.yamlfile.units import show

MAX_CONSENSUS_BYTES = 2**24
"""The size limit of a document: four to eight times the size of today's consensuses."""
MAX_KB_PER_S = 2**32 - 1
"""The largest bandwidth that Tor can represent."""
NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,49}"
REQUIRED_FLAGS = frozenset({"Running", "Valid"})
LINE_LENGTH = 100
HINT = (
    "use a complete consensus: Tor stores it as cached-consensus or "
    "cached-microdesc-consensus, and CollecTor archives it"
)

_FLAVOUR = re.compile(r"network-status-version 3(?: (?:ns|microdesc))?")
_BANDWIDTH = re.compile(r"[0-9]{1,10}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_IDENTITY = re.compile(r"[A-Za-z0-9+/]{27}", re.ASCII)
_MIN_PARTS_OF_R = {"ns": 9, "microdesc": 8}


class ConsensusError(ValueError):
    """An error in a document, with the number of its line."""


@dataclass(frozen=True)
class Consensus:
    """The relays of a consensus.

    valid_after: as in the document, in UTC; weights_kb_per_s: position -> `Bandwidth=` of the
    relays that qualify for it, ascending; not_running: the number of relays without the flags
    Running and Valid; without_weight: the number of relays that clients never choose, because their
    weight is 0.
    """

    valid_after: str
    weights_kb_per_s: Mapping[str, tuple[int, ...]]
    not_running: int
    without_weight: int


@dataclass
class _Relay:
    """A partially read relay entry."""

    line: int
    flags: frozenset[str] | None = None
    kb_per_s: int | None = None


def read_consensus(content: bytes) -> Consensus:
    """Parse a consensus. Raises ConsensusError."""
    try:
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConsensusError(f"line {line}: not text in UTF-8") from None
    # CollecTor's files begin with an additional annotation line.
    first = 1 if lines[0].startswith("@type ") else 0
    if first >= len(lines) or _FLAVOUR.fullmatch(lines[first]) is None:
        found = show(lines[min(first, len(lines) - 1)])
        raise ConsensusError(f"line {first + 1}: expected network-status-version 3, got {found}")
    flavour = "microdesc" if lines[first].endswith("microdesc") else "ns"
    header: dict[str, str] = {}
    relays: dict[str, _Relay] = {}
    latest: _Relay | None = None
    for number, text in enumerate(lines[first:], start=first + 1):
        word, _, rest = text.partition(" ")
        if word == "directory-footer":
            break
        if word == "r":
            parts = rest.split(" ")
            if len(parts) + 1 < _MIN_PARTS_OF_R[flavour] or not _IDENTITY.fullmatch(parts[1]):
                raise ConsensusError(f"line {number}: a relay's line `r` is truncated or damaged")
            if parts[1] in relays:
                raise ConsensusError(f"line {number}: duplicate relay")
            latest = relays[parts[1]] = _Relay(number)
        elif latest is None and word in ("vote-status", "valid-after"):
            header.setdefault(word, rest)
        elif latest is None:
            continue
        elif word == "s":
            _once(latest.flags, number, "s")
            latest.flags = frozenset(rest.split())
        elif word == "w":
            _once(latest.kb_per_s, number, "w")
            latest.kb_per_s = _bandwidth(rest, number)
    else:
        raise ConsensusError("the document is truncated: it has no line directory-footer")
    status = header.get("vote-status")
    if status != "consensus":
        found = "no line vote-status" if status is None else f"vote-status {show(status)}"
        raise ConsensusError(f"expected the line `vote-status consensus`, got {found}")
    valid_after = header.get("valid-after", "")
    if _TIME.fullmatch(valid_after) is None:
        raise ConsensusError("the line valid-after is missing or has no valid time")
    return _classify(valid_after, list(relays.values()))


def _once(earlier: object, number: int, word: str) -> None:
    if earlier is not None:
        raise ConsensusError(f"line {number}: duplicate line `{word}` for one relay")


def _bandwidth(text: str, number: int) -> int:
    """Return the weight in a line `w`, which must contain Bandwidth= exactly once."""
    found = [word[len("Bandwidth=") :] for word in text.split() if word.startswith("Bandwidth=")]
    if len(found) != 1 or not _BANDWIDTH.fullmatch(found[0]) or int(found[0]) > MAX_KB_PER_S:
        raise ConsensusError(f"line {number}: expected one Bandwidth= with a number of kB/s")
    return int(found[0])


def _classify(valid_after: str, relays: list[_Relay]) -> Consensus:
    weights: dict[str, list[int]] = {role: [] for role in RELAY_ROLES}
    not_running = without_weight = 0
    for relay in relays:
        for word, value in (("s", relay.flags), ("w", relay.kb_per_s)):
            if value is None:
                raise ConsensusError(f"line {relay.line}: this relay has no line `{word}`")
        assert relay.flags is not None
        assert relay.kb_per_s is not None
        if not relay.flags >= REQUIRED_FLAGS:
            not_running += 1
        elif relay.kb_per_s == 0:
            without_weight += 1
        else:
            weights[_position(relay.flags)].append(relay.kb_per_s)
    if not any(weights.values()):
        raise ConsensusError("no relay is running and has a weight")
    return Consensus(
        valid_after=valid_after,
        weights_kb_per_s={role: tuple(sorted(found)) for role, found in weights.items()},
        not_running=not_running,
        without_weight=without_weight,
    )


def _position(flags: frozenset[str]) -> str:
    """Return the most specialised circuit position that a relay with these flags qualifies for."""
    is_exit = "Exit" in flags and "BadExit" not in flags
    is_guard = "Guard" in flags
    if is_exit:
        return "exitguard" if is_guard else "exit"
    return "guard" if is_guard else "middle"


def import_consensus(root: Path, source: Path, name: str) -> tuple[Consensus, Path]:
    """Write a consensus's distributions to a file of the checkout. Return both.

    Distributions are called after `name` and a position. Writing identical content changes nothing.
    Raises UserError if the document cannot be read or the name is already in use.
    """
    if re.fullmatch(NAME_PATTERN, name, re.ASCII) is None:
        raise UserError(
            f"{show(name)} is not a valid name for a distribution",
            "use at most 50 lower-case letters, digits and hyphens",
        )
    try:
        content = read_content(source, MAX_CONSENSUS_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{source}: cannot be read: {reason}", HINT) from error
    try:
        consensus = read_consensus(content)
    except ConsensusError as error:
        raise UserError(f"{source}: not a valid consensus: {error}", HINT) from error
    text = capacity_file(consensus, name, hashlib.sha256(content).hexdigest())
    if len(text) > MAX_FILE_BYTES:
        raise UserError(f"{source}: too many relays for a file of distributions", HINT)
    path = root / CAPACITY_FOLDER / f"{name}.yaml"
    if path.exists() and path.read_bytes() == text:
        return consensus, path
    taken = path.exists() or distribution_names(name) & (known_capacities(root) or frozenset())
    if taken:
        raise UserError(
            f"distributions {name}-* already exist",
            f"choose another name, or remove {CAPACITY_FOLDER}/{name}.yaml: existing runs "
            "that use it will then not be found by that name",
        )
    write_whole(path, text)
    return consensus, path


def capacity_file(consensus: Consensus, name: str, sha256: str) -> bytes:
    """Return the content of a file in configs/relay-capacity/. sha256: of the document."""
    lines = [
        "# Weights of relays in a consensus of Tor, by the position that they can take, in KiB/s.",
        "# A weight is a share of what clients choose, and no capacity that anybody measured:",
        "# docs/how-to/import-a-consensus.md.",
        f"# valid-after {consensus.valid_after}, SHA-256 of the document {sha256}",
        f"# Made by `onionlab import-consensus --name {name}`.",
        "",
        "distributions:",
        *_entries(consensus, name),
    ]
    return ("\n".join(lines) + "\n").encode()


def _entries(consensus: Consensus, name: str) -> Iterator[str]:
    for role, weights in consensus.weights_kb_per_s.items():
        if weights:
            yield f"  {name}-{role}: ["
            # A kilobyte is 1000 bytes, or 125/128 KiB, which a decimal fraction represents exactly.
            listed = ", ".join(
                f"{weight * 125 / 128:.7f}".rstrip("0").rstrip(".") for weight in weights
            )
            yield textwrap.fill(
                listed + "]", LINE_LENGTH, initial_indent="    ", subsequent_indent="    "
            )
