"""Text files: reads inputs, and writes outputs atomically."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hipwright.disk import naming
from hipwright.errors import BadInput
from hipwright.machine import existing_file


def read_text(path: Path, what: str) -> str:
    """A text file's content. Raises BadInput when it cannot be read or is not UTF-8."""
    try:
        return existing_file(path, what).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"the {what} {path} is not UTF-8 text: byte {error.start} is wrong") from error
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path}: {error.strerror}") from error


def prepare_folder(folder: Path) -> None:
    """Creates the folder before the work starts. Raises BadInput if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}", hint="choose another --out folder") from error


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes each file atomically: a reader sees the old one or the new one, never a part."""
    for name, text in files.items():
        write_file(folder / name, text)


def write_file(path: Path, text: str) -> None:
    """Writes one text file atomically, with the permissions of the umask."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Writes one file atomically, with the permissions of the umask."""
    with naming(path):
        _replace(path, data)


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
