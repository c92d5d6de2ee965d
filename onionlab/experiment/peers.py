"""What an experiment file of kind `peers` may hold: the single definition of its keys.

The kinds of values, the header and the engines' options are those of any experiment; network,
transfer and times are this kind's own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from onionlab.experiment.schema import (
    Header,
    ShadowOptions,
    UmlOptions,
)
from onionlab.yamlfile.field_types import Fraction, PositiveTime, Rate, Size, Time
from onionlab.yamlfile.model import Model, key

KIND = "peers"
PeersFigureKind = Literal["transfer-window"]
PEER_FIGURE_KINDS: tuple[str, ...] = get_args(PeersFigureKind)
TRANSFER = "transfer"
"""What tables and claims call the one class of an experiment of this kind."""

BLOCK_BYTES = 16_384
MAX_PIECE_BYTES = 16 * 2**20

_identifier = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")


class PeersNetwork(Model):
    """The two hosts and the path between them."""

    rtt_s: PositiveTime = key(alias="rtt", description="time there and back, without load")
    seed_bit_per_s: Rate = key(alias="seed_bandwidth", description="of the seed, up and down alike")
    downloader_bit_per_s: Rate = key(
        alias="downloader_bandwidth", description="of the downloader, up and down alike"
    )
    packet_loss: Fraction = key("0 %", description="share of packets lost on the path")


class Transfer(Model):
    """What is transferred, and how."""

    size_bytes: Size = key(
        alias="size", description="of the torrent; larger than what a run can fetch"
    )
    piece_bytes: Size = key(
        "256 KiB", alias="piece", description="a power of two of at least 16 KiB"
    )
    transport: Literal["utp", "tcp"] = key(
        "utp", description="between the peers; only uTP tells of its congestion window"
    )
    connects: Literal["downloader", "seed"] = key(
        "downloader",
        description="which of the two does; libtorrent connects at the start of its own second, so "
        "for a downloader that does its second always begins with the connection",
    )
    sample_s: PositiveTime = key(
        "5 ms", alias="sample", description="at most one line of each kind in this time"
    )

    @model_validator(mode="after")
    def _pieces(self) -> Transfer:
        piece = self.piece_bytes
        if piece & (piece - 1) or not BLOCK_BYTES <= piece <= MAX_PIECE_BYTES:
            raise ValueError("expected a piece of 16 KiB, 32 KiB, ... 16 MiB")
        return self


class LibtorrentSettings(Model):
    """Which libtorrent runs."""

    variants: tuple[Annotated[str, _identifier], ...] = key(
        strict=False,
        min_length=1,
        description="names from `libtorrent-patches/variants.yaml`, in the order of figures; both "
        "peers run the variant",
    )
    baseline: Annotated[str, _identifier] = key(
        description="the variant that the others are compared with"
    )


class PeersTime(Model):
    """The phases of a run."""

    start_s: PositiveTime = key(
        "1 s", alias="start", description="the downloader starts; the seed is there before"
    )
    spread_s: Time = key(
        "1 s",
        alias="spread",
        description="the downloader's start is drawn from this span after `start`; a seed that "
        "connects does when it is over",
    )
    measured_s: PositiveTime = key(
        alias="measured", description="from the latest start to the end of the run"
    )

    @property
    def measured_start_s(self) -> float:
        """Start of the measured span, since the start of the simulation."""
        return self.start_s

    @property
    def measured_end_s(self) -> float:
        """End of the measured span, and of the simulation."""
        return self.start_s + self.spread_s + self.measured_s

    @property
    def stop_s(self) -> float:
        """End of the simulation."""
        return self.measured_end_s


class PeersEngine(Model):
    """How the simulation is done."""

    shadow: ShadowOptions = key({}, description="only read when Shadow is the engine")
    uml: UmlOptions = key({}, description="only read when the embedded engine runs")


class PeersSettings(Model):
    """Everything that determines a run but its variant, seed and repeat."""

    network: PeersNetwork = key(description="hosts and the path between them")
    transfer: Transfer = key(description="what is transferred")
    libtorrent: LibtorrentSettings = key(description="variants of libtorrent")
    time: PeersTime = key(description="phases of a run")
    engine: PeersEngine = key({}, description="options of the simulation itself")

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in the order of figures."""
        return self.libtorrent.variants

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.libtorrent.baseline

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """What the analysis is told of the load: one transfer."""
        return {TRANSFER: {"request_bytes": self.transfer.size_bytes, "count": 1}}


class PeersHeader(Header[PeersSettings, PeersFigureKind]):
    """The keys of a file that are not settings of its runs."""

    kind: Literal["peers"] = key(description="this kind of experiment")


class PeersFile(PeersSettings, PeersHeader):
    """A whole experiment file. What it extends can supply any of its keys."""
