"""Relays' weights from a network-status consensus of Tor, as distributions of capacity.

The format: dir-spec, "Vote and consensus status document formats"; either flavour is read. Of each
relay three lines count: `r` (its identity), `s` (flags) and `w` (`Bandwidth=`, in kB/s).
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

LARGEST_CONSENSUS_BYTES = 2**24
"""Four to eight times as much as a consensus of today."""
MOST_KB_PER_S = 2**32 - 1
"""What Tor itself can hold."""
NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,49}"
IN_USE = frozenset({"Running", "Valid"})
LINE_LENGTH = 100
HINT = (
    "a consensus is what Tor keeps as cached-consensus or cached-microdesc-consensus, and "
    "CollecTor archives; give a whole one"
)

_FLAVOUR = re.compile(r"network-status-version 3(?: (?:ns|microdesc))?")
_BANDWIDTH = re.compile(r"[0-9]{1,10}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_IDENTITY = re.compile(r"[A-Za-z0-9+/]{27}", re.ASCII)
_LEAST_PARTS_OF_R = {"ns": 9, "microdesc": 8}


class ConsensusError(ValueError):
    """What is wrong with a document, with its line."""


@dataclass(frozen=True)
class Consensus:
    """What a consensus says of relays.

    valid_after: as it has it, in UTC; weights_kb_per_s: position -> `Bandwidth=` of the relays that
    can take it, ascending; not_running: relays without the flags Running and Valid; without_weight:
    relays that Tor would choose for nothing, because their weight is 0.
    """

    valid_after: str
    weights_kb_per_s: Mapping[str, tuple[int, ...]]
    not_running: int
    without_weight: int


@dataclass
class _Relay:
    """A relay's entry as far as it was read."""

    line: int
    flags: frozenset[str] | None = None
    kb_per_s: int | None = None


def read_consensus(content: bytes) -> Consensus:
    """Read a consensus. Raises ConsensusError."""
    try:
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConsensusError(f"line {line}: not text in UTF-8") from None
    # CollecTor's files begin with a line of their own.
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
            if len(parts) + 1 < _LEAST_PARTS_OF_R[flavour] or not _IDENTITY.fullmatch(parts[1]):
                raise ConsensusError(f"line {number}: a relay's line `r` is cut short or damaged")
            if parts[1] in relays:
                raise ConsensusError(f"line {number}: this relay stands there twice")
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
        raise ConsensusError("it is cut short: there is no line directory-footer")
    status = header.get("vote-status")
    if status != "consensus":
        found = "no line vote-status" if status is None else f"vote-status {show(status)}"
        raise ConsensusError(f"expected the line `vote-status consensus`, got {found}")
    valid_after = header.get("valid-after", "")
    if _TIME.fullmatch(valid_after) is None:
        raise ConsensusError("there is no line valid-after with a time")
    return _sorted_out(valid_after, list(relays.values()))


def _once(earlier: object, number: int, word: str) -> None:
    if earlier is not None:
        raise ConsensusError(f"line {number}: a second line `{word}` of one relay")


def _bandwidth(text: str, number: int) -> int:
    """The weight of a line `w`: Bandwidth= comes first or later, and once."""
    found = [word[len("Bandwidth=") :] for word in text.split() if word.startswith("Bandwidth=")]
    if len(found) != 1 or not _BANDWIDTH.fullmatch(found[0]) or int(found[0]) > MOST_KB_PER_S:
        raise ConsensusError(f"line {number}: expected one Bandwidth= with a number of kB/s")
    return int(found[0])


def _sorted_out(valid_after: str, relays: list[_Relay]) -> Consensus:
    weights: dict[str, list[int]] = {role: [] for role in RELAY_ROLES}
    not_running = without_weight = 0
    for relay in relays:
        for word, value in (("s", relay.flags), ("w", relay.kb_per_s)):
            if value is None:
                raise ConsensusError(f"line {relay.line}: this relay has no line `{word}`")
        assert relay.flags is not None
        assert relay.kb_per_s is not None
        if not relay.flags >= IN_USE:
            not_running += 1
        elif relay.kb_per_s == 0:
            without_weight += 1
        else:
            weights[_position(relay.flags)].append(relay.kb_per_s)
    if not any(weights.values()):
        raise ConsensusError("no relay in it is running and has a weight")
    return Consensus(
        valid_after=valid_after,
        weights_kb_per_s={role: tuple(sorted(found)) for role, found in weights.items()},
        not_running=not_running,
        without_weight=without_weight,
    )


def _position(flags: frozenset[str]) -> str:
    """What a relay can be in a circuit besides the middle."""
    is_exit = "Exit" in flags and "BadExit" not in flags
    is_guard = "Guard" in flags
    if is_exit:
        return "exitguard" if is_guard else "exit"
    return "guard" if is_guard else "middle"


def import_consensus(root: Path, source: Path, name: str) -> tuple[Consensus, Path]:
    """Write a consensus's distributions to a file of the checkout; returns both.

    name: what the distributions' names begin with; they end in a position. Writing the same again
    changes nothing. Raises UserError where the document cannot be read or the name is taken.
    """
    if re.fullmatch(NAME_PATTERN, name, re.ASCII) is None:
        raise UserError(
            f"{show(name)} is no name for a distribution",
            "lower-case letters, digits and hyphens only, at most 50 of them",
        )
    try:
        content = read_content(source, LARGEST_CONSENSUS_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{source}: cannot be read: {reason}", HINT) from error
    try:
        consensus = read_consensus(content)
    except ConsensusError as error:
        raise UserError(f"{source}: no consensus that can be read: {error}", HINT) from error
    text = capacity_file(consensus, name, hashlib.sha256(content).hexdigest())
    if len(text) > MAX_FILE_BYTES:
        raise UserError(f"{source}: more relays than a file of distributions holds", HINT)
    path = root / CAPACITY_FOLDER / f"{name}.yaml"
    if path.exists() and path.read_bytes() == text:
        return consensus, path
    taken = path.exists() or distribution_names(name) & (known_capacities(root) or frozenset())
    if taken:
        raise UserError(
            f"there are distributions {name}-* already",
            f"choose another name, or remove {CAPACITY_FOLDER}/{name}.yaml: runs that were made "
            "with it are not made again by that name",
        )
    write_whole(path, text)
    return consensus, path


def capacity_file(consensus: Consensus, name: str, sha256: str) -> bytes:
    """The distributions as a file of configs/relay-capacity/. sha256: of the document."""
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
            # A kilobyte is 1000 bytes; 125/128 KiB, which a decimal fraction gives exactly.
            listed = ", ".join(
                f"{weight * 125 / 128:.7f}".rstrip("0").rstrip(".") for weight in weights
            )
            yield textwrap.fill(
                listed + "]", LINE_LENGTH, initial_indent="    ", subsequent_indent="    "
            )
