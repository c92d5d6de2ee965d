"""The keys of an experiment of kind `peers`, and checks of its settings.

In such an experiment, a BitTorrent peer (libtorrent) downloads from another peer, without Tor.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import model_validator

from onionlab.experiment.header import Header
from onionlab.experiment.network_settings import IDENTIFIER
from onionlab.experiment.settings import RunSettings
from onionlab.experiment.traffic_settings import Engines
from onionlab.yamlfile.field_types import Fraction, PositiveTime, Rate, Size, Time
from onionlab.yamlfile.model import Model, key

PeersFigureKind = Literal["transfer-window"]
TRANSFER = "transfer"
"""Name of the only class of traffic in such an experiment. Metrics are reported by class."""

BLOCK_BYTES = 16_384
MAX_PIECE_BYTES = 16 * 2**20


class PeersNetwork(Model):
    """The two hosts and the path between them."""

    rtt_s: PositiveTime = key(alias="rtt", description="time there and back, without load")
    seed_bit_per_s: Rate = key(alias="seed_bandwidth", description="of the seed, up and down alike")
    downloader_bit_per_s: Rate = key(
        alias="downloader_bandwidth", description="of the downloader, up and down alike"
    )
    packet_loss: Fraction = key("0 %", description="share of packets lost on the path")


class Transfer(Model):
    """The transfer between the two hosts."""

    size_bytes: Size = key(
        alias="size", description="of the torrent; larger than what a run can fetch"
    )
    piece_bytes: Size = key(
        "256 KiB", alias="piece", description="a power of two of at least 16 KiB"
    )
    transport: Literal["utp", "tcp"] = key(
        "utp", description="between the peers; only uTP logs its congestion window"
    )
    connects: Literal["downloader", "seed"] = key(
        "downloader",
        description="which of the two connects; libtorrent connects at the start of a second of "
        "its clock, so if the downloader connects, its seconds begin with the connection",
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
    """The variants of libtorrent to compare."""

    variants: tuple[Annotated[str, IDENTIFIER], ...] = key(
        strict=False,
        min_length=1,
        description="names from `libtorrent-patches/variants.yaml`, in the order of figures; both "
        "peers run the variant",
    )
    baseline: Annotated[str, IDENTIFIER] = key(
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
        """Return the start of the measured span, in seconds after the start of the simulation."""
        return self.start_s

    @property
    def measured_end_s(self) -> float:
        """Return the end of the measured span, which is the end of the simulation, in seconds."""
        return self.start_s + self.spread_s + self.measured_s

    stop_s = measured_end_s


class PeersSettings(RunSettings):
    """Everything that determines a run, except its variant, network and repeat."""

    section = "libtorrent"

    network: PeersNetwork = key(description="hosts and the path between them")
    transfer: Transfer = key(description="what is transferred")
    libtorrent: LibtorrentSettings = key(description="variants of libtorrent")
    time: PeersTime = key(description="phases of a run")
    engine: Engines = key({}, description="options of the simulation itself")

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """Return the facts that the analysis needs about the only traffic class, by its name."""
        return {TRANSFER: {"request_bytes": self.transfer.size_bytes, "count": 1}}


class PeersHeader(Header[PeersSettings, PeersFigureKind]):
    """The keys of a file that are not settings of its runs."""

    default_figures = get_args(PeersFigureKind)

    kind: Literal["peers"] = key(description="this kind of experiment")


class PeersFile(PeersSettings, PeersHeader):
    """All keys of an experiment file, for its schema and reference and for suggestions of names.

    No key is required, because the files that the file extends may supply any key.
    """
