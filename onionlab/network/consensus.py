"""Read relay weights from a Tor network-status consensus as distributions of capacity.

The format is specified in dir-spec, "Vote and consensus status document formats"; both flavours are
supported. Three lines of each relay are used: `r` (its identity), `s` (flags) and `w`
(`Bandwidth=`, in kB/s).
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.compressed import read_content
from analysis.formats.durable import write_whole
from onionlab.errors import UserError
from onionlab.network.geography import CAPACITY_FOLDER, known_capacities
from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.model import MAX_FILE_BYTES
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
_RELAY_LINES = ("r", "s", "w")
_Entry = dict[str, tuple[int, str]]
"""The lines of the header or of a relay: keyword -> the number of the first line with this keyword,
and the text after the keyword."""


class ConsensusError(ValueError):
    """An error in a document. The message begins with the line number if the line is known."""


@dataclass(frozen=True)
class Consensus:
    """The relays of a consensus.

    valid_after: the time in the document, in UTC. weights_kb_per_s: circuit position -> ascending
    weights (`Bandwidth=`) of its relays. Each relay is listed only under the most specialised
    position that it qualifies for. not_running: the number of relays without the flag Running or
    without the flag Valid, which are not listed. without_weight: the number of other relays with a
    weight of 0. Clients never choose them, so they are not listed either.
    """

    valid_after: str
    weights_kb_per_s: Mapping[str, tuple[int, ...]]
    not_running: int
    without_weight: int


def read_consensus(content: bytes) -> Consensus:
    """Parse a consensus. Raises ConsensusError if it is invalid."""
    try:
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ConsensusError(f"line {number}: not text in UTF-8") from None
    # CollecTor's files begin with an additional annotation line.
    first = 1 if lines[0].startswith("@type ") else 0
    head = "".join(lines[first : first + 1])
    if _FLAVOUR.fullmatch(head) is None:
        expected = "expected network-status-version 3"
        raise ConsensusError(f"line {first + 1}: {expected}, got {show(head)}")
    min_parts = 8 if head.endswith("microdesc") else 9  # of a line `r`
    header: _Entry = {}
    relays: list[_Entry] = []
    for number, line in enumerate(lines[first:], start=first + 1):
        word, _, rest = line.partition(" ")
        if word == "directory-footer":
            break
        if word == "r":
            relays.append({})
        entry = relays[-1] if relays else header
        if word in entry and relays and word in _RELAY_LINES:
            raise ConsensusError(f"line {number}: duplicate line `{word}` for one relay")
        entry.setdefault(word, (number, rest))
    else:
        raise ConsensusError("the document is truncated: it has no line directory-footer")
    status = header.get("vote-status", (0, ""))[1]
    if status != "consensus":
        raise ConsensusError(f"expected the line `vote-status consensus`, got {show(status)}")
    valid_after = header.get("valid-after", (0, ""))[1]
    if _TIME.fullmatch(valid_after) is None:
        raise ConsensusError("the line valid-after is missing or has no valid time")
    return _classify(valid_after, relays, min_parts)


def _classify(valid_after: str, relays: list[_Entry], min_parts: int) -> Consensus:
    weights: dict[str, list[int]] = {role: [] for role in RELAY_ROLES}
    seen: set[str] = set()
    not_running = without_weight = 0
    for entry in relays:
        number, router = entry["r"]
        parts = router.split(" ")
        if len(parts) + 1 < min_parts or not _IDENTITY.fullmatch(parts[1]):
            raise ConsensusError(f"line {number}: a relay's line `r` is truncated or damaged")
        if parts[1] in seen:
            raise ConsensusError(f"line {number}: duplicate relay")
        seen.add(parts[1])
        for word in _RELAY_LINES:
            if word not in entry:
                raise ConsensusError(f"line {number}: this relay has no line `{word}`")
        flags = frozenset(entry["s"][1].split())
        kb_per_s = _bandwidth(*entry["w"])
        if not flags >= REQUIRED_FLAGS:
            not_running += 1
        elif kb_per_s == 0:
            without_weight += 1
        else:
            weights[_position(flags)].append(kb_per_s)
    if not any(weights.values()):
        raise ConsensusError("no relay is running and has a weight")
    return Consensus(
        valid_after=valid_after,
        weights_kb_per_s={role: tuple(sorted(found)) for role, found in weights.items()},
        not_running=not_running,
        without_weight=without_weight,
    )


def _bandwidth(number: int, text: str) -> int:
    """Return the weight in a line `w`, which must contain Bandwidth= exactly once."""
    found = [word[len("Bandwidth=") :] for word in text.split() if word.startswith("Bandwidth=")]
    if len(found) != 1 or not _BANDWIDTH.fullmatch(found[0]) or int(found[0]) > MAX_KB_PER_S:
        raise ConsensusError(f"line {number}: expected one Bandwidth= with a number of kB/s")
    return int(found[0])


def _position(flags: frozenset[str]) -> str:
    """Return the most specialised circuit position that a relay with these flags qualifies for."""
    if "Exit" in flags and "BadExit" not in flags:
        return "exitguard" if "Guard" in flags else "exit"
    return "guard" if "Guard" in flags else "middle"


def import_consensus(root: Path, source: Path, name: str) -> tuple[Consensus, Path]:
    """Write a consensus's distributions to a file of the checkout. Return consensus and file.

    The distributions are named `name`-POSITION, for instance `name`-guard. If the file exists with
    the same content, nothing changes. Raises UserError if the document cannot be read, is not a
    valid consensus or has too many relays, or if the name is invalid or already in use.
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
    known = known_capacities(root) or frozenset()
    if path.exists() or any(f"{name}-{role}" in known for role in RELAY_ROLES):
        raise UserError(
            f"distributions {name}-* already exist",
            f"choose another name, or remove {CAPACITY_FOLDER}/{name}.yaml: existing runs "
            "that use it will then not be found by that name",
        )
    write_whole(path, text)
    return consensus, path


def capacity_file(consensus: Consensus, name: str, sha256: str) -> bytes:
    """Return the content of a file in configs/relay-capacity/ with a consensus's distributions.

    sha256: the SHA-256 of the document from which the consensus was read.
    """
    lines = [
        "# Weights of relays in a consensus of Tor, by the position that they can take, in KiB/s.",
        "# A weight is a share of what clients choose, and no capacity that anybody measured:",
        "# docs/how-to/import-a-consensus.md.",
        f"# valid-after {consensus.valid_after}, SHA-256 of the document {sha256}",
        f"# Made by `onionlab import-consensus --name {name}`.",
        "",
        "distributions:",
    ]
    for role, weights in consensus.weights_kb_per_s.items():
        if weights:
            # A kilobyte is 1000 bytes, or 125/128 KiB, which a decimal fraction represents exactly.
            listed = ", ".join(
                f"{weight * 125 / 128:.7f}".rstrip("0").rstrip(".") for weight in weights
            )
            lines.append(f"  {name}-{role}: [")
            lines += textwrap.wrap(
                listed + "]", LINE_LENGTH, initial_indent="    ", subsequent_indent="    "
            )
    return ("\n".join(lines) + "\n").encode()
