"""AMD's device math library (ocml): locates its bitcode and links it into kernels.

The library reads constants (`__oclc_...`) that describe the target. They are generated here, so that the two files of
the triton wheel suffice, and linked last, after the code that refers to them.
"""

from __future__ import annotations

import functools
import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

from hipwright.records import Record
from hipwright.targets import Architecture

LIBRARIES = ("ocml.bc", "ockl.bc")
CONSTANTS = "oclc.ll"


class Bitcode(Record, frozen=True, kw_only=True):
    """A folder with `ocml.bc`, and the hash of that file."""

    folder: str
    hash: str


def places() -> list[Path]:
    """Folders that may hold ocml.bc, best first: ROCm installs, the triton wheel, Debian's rocm-device-libs."""
    named = [Path(value) for value in (os.environ.get("ROCM_PATH"), os.environ.get("HIP_PATH")) if value]
    spec = find_spec("triton")
    wheels = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return [
        *(root / "amdgcn/bitcode" for root in (*named, Path("/opt/rocm"))),
        *(wheel / "backends/amd/lib" for wheel in wheels),
        *sorted(Path("/usr/lib").glob("*/amdgcn/bitcode"), reverse=True),
        *sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/amdgcn/bitcode"), reverse=True),
    ]


@functools.cache
def find() -> Bitcode | None:
    """The first ocml.bc found, None without one (then hipwright's own device math is used)."""
    for folder in places():
        library = folder / LIBRARIES[0]
        if library.is_file():
            return Bitcode(folder=str(folder.resolve()), hash=hashlib.sha256(library.read_bytes()).hexdigest()[:20])
    return None


def flags(bitcode: Bitcode) -> list[str]:
    """Front-end arguments that link the library; `oclc.bc` is made from `constants` in the working directory."""
    files = [str(path) for name in LIBRARIES if (path := Path(bitcode.folder) / name).is_file()]
    linked = [part for name in (*files, "oclc.bc") for part in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", name)]
    return [*linked, "-DHW_OCML=1", "-Wno-linker-warnings"]


def constants(architecture: Architecture, code_object: int) -> str:
    """LLVM IR of the library's constants: IEEE subnormals, no relaxed math, wave, architecture, code object version."""
    values = {
        "daz_opt": ("i8", 0),
        "finite_only_opt": ("i8", 0),
        "unsafe_math_opt": ("i8", 0),
        "correctly_rounded_sqrt32": ("i8", 1),
        "wavefrontsize64": ("i8", int(architecture.wave == 64)),
        "ISA_version": ("i32", isa_version(architecture.isa)),
        "ABI_version": ("i32", 100 * code_object),
    }
    lines = [
        f"@__oclc_{name} = linkonce_odr hidden local_unnamed_addr addrspace(4) constant {kind} {value}"
        for name, (kind, value) in values.items()
    ]
    return "\n".join(['target triple = "amdgcn-amd-amdhsa"', *lines, ""])


def isa_version(name: str) -> int:
    """AMD's number of an architecture: gfx90a is 9010, gfx1100 is 11000 (major, two digits minor, hex stepping)."""
    digits = name.removeprefix("gfx")
    major, minor, stepping = int(digits[:-2]), int(digits[-2]), int(digits[-1], 16)
    return major * 1000 + minor * 100 + stepping
