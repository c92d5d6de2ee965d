"""TGen's names of errors, and the corresponding outcomes of streams."""

from __future__ import annotations

from analysis.formats.columns import Outcome

_BY_STREAM_ERROR = {
    "TIMEOUT": Outcome.TIMEOUT,
    "STALLOUT": Outcome.STALL,
    "READEOF": Outcome.CLOSED,
    "WRITEEOF": Outcome.CLOSED,
    "READ": Outcome.CONNECTION_ERROR,
    "WRITE": Outcome.CONNECTION_ERROR,
    "MISC": Outcome.CONNECTION_ERROR,
    "AUTH": Outcome.PROTOCOL_ERROR,
    "MODEL": Outcome.PROTOCOL_ERROR,
    "CHECKSUM": Outcome.PROTOCOL_ERROR,
    "FOOTER": Outcome.PROTOCOL_ERROR,
}
_BY_TRANSPORT_ERROR = {"TIMEOUT": Outcome.TIMEOUT, "STALLOUT": Outcome.STALL}


def classify(success: bool, error: str, transport_error: str) -> tuple[Outcome, str]:
    """Return the outcome and error name of an ended stream.

    The names come from ``_tgenstream_errorToString`` and, after ``PROXY-``, from
    ``_tgentransport_errorToString``. A timeout before the transport made any progress is logged as
    PROXY with the transport's error TIMEOUT, and counts as a timeout.
    """
    if success:
        return Outcome.SUCCESS, ""
    if error == "PROXY":
        outcome = _BY_TRANSPORT_ERROR.get(transport_error, Outcome.PROXY_ERROR)
        return outcome, f"PROXY-{transport_error}"
    if error.startswith("HEADER"):
        return Outcome.PROTOCOL_ERROR, error
    return _BY_STREAM_ERROR.get(error, Outcome.OTHER_ERROR), error
