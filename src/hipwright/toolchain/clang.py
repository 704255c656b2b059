"""Locates the compiler and hipwright's headers, without running anything."""

from __future__ import annotations

import functools
import hashlib
import os
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from hipwright.errors import ToolchainError
from hipwright.records import Record

INCLUDE = Path(__file__).parent / "include"
FIX = "pip install ziglang==0.17.0"


class Clang(Record, frozen=True, kw_only=True):
    """clang, the assembler and lld in one program, the `zig` of the ziglang wheel. folder: its installation."""

    program: str
    folder: str
    version: str

    @property
    def id(self) -> str:
        """Name and version, for fingerprints and keys."""
        return f"ziglang {self.version}"


@functools.cache
def find() -> Clang:
    """The ziglang wheel of this Python. Raises ToolchainError, with the command to install it, without one."""
    spec = find_spec("ziglang")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        program = Path(place) / "zig"
        if os.access(program, os.X_OK):
            return Clang(program=str(program), folder=place, version=_version(program))
    why = "is broken: it has no program `zig`" if places else "is not installed"
    raise ToolchainError(f"no compiler for AMD GPUs: the ziglang wheel {why}", hint=FIX)


def present() -> bool:
    """Whether `find` would succeed."""
    try:
        find()
    except ToolchainError:
        return False
    return True


def _version(program: Path) -> str:
    try:
        return metadata.version("ziglang")
    except metadata.PackageNotFoundError:  # a wheel unpacked by hand
        return f"of {program.stat().st_size} bytes"


def digest(folder: Path) -> str:
    """20 hex digits over the names and contents of all files in a folder."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:20]


@functools.cache
def headers_id() -> str:
    """A digest of hipwright's headers."""
    return digest(INCLUDE)
