"""JSON files: read with one clear error, written so that nobody ever sees half of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from analysis.errors import AnalysisError, problems_of
from analysis.formats.compressed import DamagedError, TooLargeError, read_whole
from analysis.formats.durable import write_whole

T = TypeVar("T")

LARGEST_BYTES = 2**31
"""Size of a file of many values. As Python's objects it takes several times as much."""

LARGEST_OWN_BYTES = 2**25
"""Size of any other file of ours. Python's objects of a damaged one take up to twenty times it."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def json_text(data: Any) -> str:
    """JSON as it stands in run directories, records and packs: the same data, the same bytes."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def write_json(path: Path, data: Any, *, durable: bool = True) -> None:
    """Write JSON so that a reader sees the old file or the whole new one (see `whole_file`)."""
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_whole(path, text, durable=durable)


def read_json(
    path: Path,
    *,
    missing: str | None = None,
    wrong: str | None = None,
    most: int = LARGEST_BYTES,
) -> Any:
    """Read a JSON file; one whose name ends with .xz is compressed.

    Args:
        path: of the file.
        missing: hint at what to do where it is missing.
        wrong: hint at what to do where it is not JSON.
        most: bytes that it may hold.

    Raises:
        AnalysisError: missing, unreadable, not compressed as its name says, too large, or not JSON.
    """
    try:
        return parse_json(read_whole(path, most))
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", missing) from None
    except OSError as error:
        raise AnalysisError(f"{path} cannot be read: {error.strerror or error}") from None
    except TooLargeError as error:
        raise AnalysisError(f"{path} is too large: {error}", wrong) from None
    except DamagedError as error:
        raise AnalysisError(f"{path} is damaged or not {path.suffix[1:]}: {error}", wrong) from None
    except ValueError as error:
        raise AnalysisError(f"{path} is not valid JSON: {error}", wrong) from None


def parse_json(data: bytes | bytearray) -> Any:
    """What a file's bytes say.

    pydantic's parser bounds depth (200) and digits (4,300) and takes no half of a character: what
    it takes can be checked, written and printed.

    Raises:
        ValueError: not JSON, or beyond these.
    """
    return from_json(data.removeprefix(_BYTE_ORDER_MARK))


def read_as(
    kind: type[T],
    path: Path,
    noun: str,
    *,
    missing: str | None = None,
    wrong: str | None = None,
    most: int = LARGEST_OWN_BYTES,
) -> T:
    """Read a JSON file as a model or data class.

    Args:
        kind: the model.
        path: of the file.
        noun: what the file is: a "study", a "plan".
        missing: hint at what to do where it is missing.
        wrong: hint at what to do where it is not such a file.
        most: bytes that it may hold.

    Raises:
        AnalysisError: missing, not JSON, or not of the model; says which keys.
    """
    content = read_json(path, missing=missing, wrong=wrong, most=most)
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        problems = "; ".join(problems_of(error, noun))
        raise AnalysisError(f"{path} is not a valid {noun}: {problems}", wrong) from None
