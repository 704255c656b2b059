"""AMD's header sets on this machine: what scripts/header-sets.sh fetched, and which releases they are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT

NAMES = ("debian-5.2", "debian-5.7", "debian-6.4", "triton", "debian-7.2")
FETCH = "scripts/header-sets.sh"
_VERSION = re.compile(r"#define HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)")


@dataclass(frozen=True)
class HeaderSet:
    """One release's headers.

    folder: laid out like a file system's root. wrapper: the folder of clang's HIP headers, whose wrapper
    hipcc includes first: of the set's own clang, else of the newest here. built_in: the library that holds hipRTC's
    built-in header. hiprtc: the library with hipRTC's functions. Both are None for a set of headers alone.
    """

    name: str
    rocm: str
    folder: Path
    wrapper: Path
    built_in: Path | None
    hiprtc: Path | None

    @property
    def include(self) -> Path:
        """The folder that holds hip/."""
        return self.folder / "usr/include"

    @property
    def libraries(self) -> Path:
        """The folder of its shared libraries."""
        return self.folder / "usr/lib/x86_64-linux-gnu"


def root() -> Path:
    """Where header sets are: $HIPWRIGHT_HEADER_SETS, else .header-sets of the repository."""
    return Path(os.environ.get("HIPWRIGHT_HEADER_SETS") or ROOT / ".header-sets")


def find(folder: Path | None = None) -> dict[str, HeaderSet | str]:
    """Every known set by name, or why it is not here."""
    folder = folder or root()
    return {name: _find(folder, name) for name in NAMES}


def present(folder: Path | None = None) -> list[HeaderSet]:
    """The sets that are here, oldest release first."""
    return [one for one in find(folder).values() if isinstance(one, HeaderSet)]


def _find(folder: Path, name: str) -> HeaderSet | str:
    place = folder / name
    wrappers = [found for place in (folder, place) for found in _wrappers(place)]
    version = place / "usr/include/hip/hip_version.h"
    if not version.is_file():
        reason = folder / f"{name}.missing"
        return reason.read_text().strip() if reason.is_file() else f"not fetched: {FETCH}"
    if not wrappers:
        return "no set has clang's HIP wrapper headers (libclang-common-*-dev)"
    numbers = dict(_VERSION.findall(version.read_text()))
    libraries = place / "usr/lib/x86_64-linux-gnu"
    return HeaderSet(
        name=name,
        rocm=".".join(numbers[part] for part in ("MAJOR", "MINOR")),
        folder=place,
        wrapper=wrappers[-1],
        built_in=_first(libraries, "libhiprtc-builtins.so.?"),
        hiprtc=_first(libraries, "libhiprtc.so.?") or _first(libraries, "libamdhip64.so.5"),
    )


def _first(folder: Path, pattern: str) -> Path | None:
    return next(iter(sorted(folder.glob(pattern))), None)


def _wrappers(place: Path) -> list[Path]:
    """The folders of clang's HIP headers in a set, or in all sets of a folder, by clang's release."""
    pattern = "usr/lib/llvm-*/lib/clang/*/include/__clang_hip_runtime_wrapper.h"
    found = [*place.glob(pattern), *place.glob(f"*/{pattern}")]
    return [path.parent for path in sorted(found, key=_number)]


def _number(path: Path) -> int:
    """The release of clang that a wrapper belongs to."""
    found = re.search(r"/llvm-(\d+)/", str(path))
    return int(found[1]) if found else 0
