"""Files of other formats as typed records; what is wrong with one is one line that names the file and the field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from hipwright import syntax
from hipwright.evaluation.formats.base import BenchTask

MAX_BYTES = 16 << 20
"""A description of a task is text by hand or of a tracer; what is larger is no such file."""
Found = TypeVar("Found")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@=-]*")


class Malformed(ValueError):
    """One task of a folder that cannot be read; its text names the file and the field."""


def text_of(path: Path, root: Path) -> str:
    """A UTF-8 file's text. Raises Malformed."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Malformed(f"{below(path, root)}: over {MAX_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"{below(path, root)}: not UTF-8 text, byte {error.start} is wrong") from None
    except OSError as error:
        raise Malformed(f"{below(path, root)}: {error.strerror or error}") from None


def inside(allowed: Path, base: Path, source: str, where: str) -> Path:
    """The path that a description names, from base. Raises Malformed for one outside of `allowed`."""
    try:
        place = (base / source).resolve()
    except (OSError, ValueError) as error:
        raise Malformed(f"{where}: {error}") from None
    if not place.is_relative_to(allowed.resolve()):
        raise Malformed(f"{where}: {source[:80]!r} is outside of the folder")
    return place


def below(path: Path, root: Path) -> str:
    """The path as messages name it: from the folder that was given."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def json_record(path: Path, root: Path, kind: type[Found]) -> Found:
    """A JSON file as a record. Raises Malformed."""
    return decoded(text_of(path, root), kind, below(path, root))


def json_lines(path: Path, root: Path, kind: type[Found]) -> Iterator[Found]:
    """The records of a JSONL file; empty lines are left out. Raises Malformed, naming the line."""
    for number, line in enumerate(text_of(path, root).splitlines(), 1):
        if line.strip():
            yield decoded(line, kind, f"{below(path, root)} line {number}")


def decoded(text: str, kind: type[Found], where: str) -> Found:
    """JSON text as a record. Raises Malformed."""
    try:
        return msgspec.json.decode(text.encode(errors="surrogatepass"), type=kind)
    except msgspec.ValidationError as error:
        raise Malformed(f"{where}: {_field(error)}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"{where}: no JSON: {error}") from None


def yaml_record(path: Path, root: Path, kind: type[Found]) -> Found:
    """A YAML file as a record. Raises Malformed, also for aliases, by which a small file may stand for a huge one."""
    text, where = text_of(path, root), below(path, root)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise Malformed(f"{where}: aliases (*name) are not read")
        return msgspec.convert(yaml.safe_load(text), kind)
    except yaml.YAMLError as error:
        raise Malformed(f"{where}: no YAML: {' '.join(str(error).split())}") from None
    except msgspec.ValidationError as error:
        raise Malformed(f"{where}: {_field(error)}") from None
    except (ValueError, RecursionError, OverflowError) as error:  # dates that do not exist, numbers too long
        raise error if isinstance(error, Malformed) else Malformed(f"{where}: {error}") from None


def python_checked(text: str, where: str) -> str:
    """Python text as it is. Raises Malformed where it does not parse."""
    try:
        syntax.parse(text)
    except SyntaxError as error:
        raise Malformed(f"{where} line {error.lineno or 0}: no Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"{where}: no Python: {error}") from None
    return text


def plain_name(text: str, where: str) -> str:
    """A name that may be one of a file. Raises Malformed."""
    if not _NAME.fullmatch(text) or len(text) > 150:
        raise Malformed(f"{where}: {json.dumps(text)[:80]} is no name (letters, digits, _ . + @ = -)")
    return text


def identifier(text: str, where: str) -> str:
    """A name of Python. Raises Malformed."""
    import keyword

    if not text.isidentifier() or keyword.iskeyword(text):
        raise Malformed(f"{where}: {json.dumps(text)[:80]} is no name of Python")
    return text


def guarded(make: Callable[[], BenchTask], name: str, path: Path, **fields: Any) -> BenchTask:
    """The task that `make` makes, or the malformed one with its problem."""
    try:
        return make()
    except Malformed as error:
        problem = " ".join(str(error).split())[:300]
        return BenchTask(name, path, problem=problem, **fields)


def _field(error: msgspec.ValidationError) -> str:
    """msgspec's message with the field first: "inputs.x.dtype: Expected ..."."""
    message, _, where = str(error).partition(" - at `")
    place = where.rstrip("`").removeprefix("$").removeprefix(".") or "the file"
    missing = re.fullmatch(r"Object missing required field `(\w+)`", message)
    if missing:
        inner = "" if place == "the file" else f"{place}."
        return f"{inner}{missing[1]}: missing"
    return f"{place}: {message}"
