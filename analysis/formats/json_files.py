"""Reading of JSON files with precise errors, and atomic writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from analysis.errors import AnalysisError, problems_of
from analysis.formats.compressed import DamagedError, TooLargeError, read_content
from analysis.formats.durable import write_whole

T = TypeVar("T")

LARGEST_BYTES = 2**31
"""Maximum size of a file with many values, such as an imported file.

The Python objects need several times as much memory.
"""

LARGEST_OWN_BYTES = 2**25
"""Maximum size of other files, such as study.json.

The Python objects of a damaged file can need twenty times as much memory.
"""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def json_text(data: Any) -> str:
    """Return JSON for run directories, records and packs; the same data gives the same bytes."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def write_json(path: Path, data: Any, *, durable: bool = True, sort_keys: bool = True) -> None:
    """Write JSON atomically, so that readers see the old or the new file (see `whole_file`)."""
    text = json.dumps(data, indent=2, sort_keys=sort_keys, ensure_ascii=False) + "\n"
    write_whole(path, text, durable=durable)


def read_json(
    path: Path, *, missing: str | None = None, wrong: str | None = None, most: int = LARGEST_BYTES
) -> Any:
    """Read a JSON file, which is decompressed if its name ends with .gz, .xz or .zst.

    Args:
        path: the file.
        missing: hint in the error if the file is missing.
        wrong: hint in the error if the file is damaged, too large or not valid.
        most: maximum size of the content in bytes.

    Raises:
        AnalysisError: the file is missing, unreadable, not compressed as its name says, too large,
            or not JSON.
    """
    try:
        return parse_json(read_content(path, most))
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
    """Parse the bytes of a JSON file, which may begin with a byte order mark.

    pydantic's parser limits the depth of nesting (200) and the digits of a number (4,300), and
    rejects incomplete characters, so that nothing fails when the result is checked, written or
    printed.

    Raises:
        ValueError: the bytes are not JSON, or exceed these limits.
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

    ``noun`` is the name of the kind of file in messages, such as "study" or "plan". The other
    arguments are as for `read_json`.

    Raises:
        AnalysisError: `read_json` fails, or the content is not valid for ``kind``; the message then
            names the wrong keys.
    """
    content = read_json(path, missing=missing, wrong=wrong, most=most)
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        problems = "; ".join(problems_of(error, noun))
        raise AnalysisError(f"{path} is not a valid {noun}: {problems}", wrong) from None


def reader(
    kind: type[T],
    noun: str,
    name: str = "",
    *,
    missing: str | None = None,
    wrong: str | None = None,
) -> Callable[[Path], T]:
    """Return a function that reads the file at a path with `read_as`.

    If ``name`` is given, the path names the folder that contains the file ``name``.
    """

    def read(path: Path) -> T:
        return read_as(kind, path / name, noun, missing=missing, wrong=wrong)

    return read
