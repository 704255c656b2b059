"""Locates ROCm on this machine: its libraries, headers and hipcc, without loading or running anything.

ROCm comes as an install (/opt/rocm, a distribution's packages), inside a torch wheel, which carries its own copy of the
runtime in torch/lib, or as the `rocm-sdk` wheels. A process must not load two HIP runtimes, so torch's copy is
preferred.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

from hipwright import config

FIX = "install ROCm 6 or later, or torch's ROCm wheel (pip install torch --index-url .../whl/rocm6.4)"
_WHEELS = ("_rocm_sdk_core", "_rocm_sdk_devel")


def roots() -> list[Path]:
    """Folders laid out like /opt/rocm (bin, include, lib), best first; each exists."""
    named = [Path(value) for name in ("ROCM_PATH", "HIP_PATH", "ROCM_HOME") if (value := os.environ.get(name))]
    wheels = [place for name in _WHEELS for place in _package(name)]
    installed = [Path("/opt/rocm"), *sorted(Path("/opt").glob("rocm-[0-9]*"), key=_version, reverse=True)]
    return [path for path in dict.fromkeys([*named, *wheels, *installed]) if path.is_dir()]


def library(stem: str) -> Path | None:
    """The file of lib<stem>.so: of torch's wheel, else of an install, else the system's; None without one."""
    simulated = config.simulated_rocm()
    folders = [simulated / "lib"] if simulated else []
    folders += [place / "lib" for place in _package("torch")]
    folders += [root / lib for root in roots() for lib in ("lib", "lib64")]
    folders += sorted(Path("/usr/lib").glob("*-linux-gnu"))
    for folder in folders:
        found = sorted(folder.glob(f"lib{stem}.so*"), key=lambda path: len(path.name))
        if found:
            return found[0]
    return None


def headers() -> Path | None:
    """The include folder that holds hip/hip_runtime.h, None where only the runtime is here."""
    places = [*(root / "include" for root in roots()), Path("/usr/include")]
    return next((place for place in places if (place / "hip/hip_runtime.h").is_file()), None)


def hipcc() -> Path | None:
    """ROCm's compiler driver, None without one. PATH is not used: only a hipcc of a known installation is run."""
    places = [*(root / "bin/hipcc" for root in roots()), Path("/usr/bin/hipcc")]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def version() -> tuple[int, int] | None:
    """(major, minor) of the ROCm found, by its headers or the name of its runtime's file; None without one."""
    folder = headers()
    text = (folder / "hip/hip_version.h") if folder else None
    if text and text.is_file():
        numbers = dict(re.findall(r"#define HIP_VERSION_(MAJOR|MINOR)\s+(\d+)", text.read_text(errors="replace")))
        if len(numbers) == 2:
            return int(numbers["MAJOR"]), int(numbers["MINOR"])
    runtime = library("amdhip64")
    named = re.search(r"\.so\.(\d+)(?:\.(\d+))?", runtime.resolve().name) if runtime else None
    return (int(named[1]), int(named[2] or 0)) if named else None


def readable() -> list[Path]:
    """The folders that ROCm's compilers must be able to read: ROCm's, or the libraries in torch's wheel."""
    found = library("hiprtc")
    simulated = map(Path, config.simulated_gpu().get("reads", ()))
    return [*roots(), *([found.resolve().parent] if found else []), *simulated]


def _package(name: str) -> list[Path]:
    spec = find_spec(name)
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name))
