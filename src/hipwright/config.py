"""The folders and limits of hipwright, from the environment."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput

SIMULATED_ROCM = "simulated-gpu.json"
"""The file that marks a folder made by `hipwright.toolchain.sim_rocm.folder`."""


def archive() -> Path | str:
    """Where the archive is: $HIPWRIGHT_HOME, a folder or the URL of a database; else ./.hipwright."""
    return place_of(os.environ.get("HIPWRIGHT_HOME") or ".hipwright")


def place_of(text: str) -> Path | str:
    """The archive that a user's text names: a URL as it is, a folder as an absolute path."""
    return text if "://" in text else Path(text).absolute()


def home() -> Path:
    """The folder of this machine's own files: the archive's, else ./.hipwright where that is a database."""
    place = archive()
    return place if isinstance(place, Path) else Path(".hipwright").absolute()


def cache_dir() -> Path:
    """The build cache all archives share: $HIPWRIGHT_CACHE, else hipwright/ in $XDG_CACHE_HOME or ~/.cache."""
    if explicit := os.environ.get("HIPWRIGHT_CACHE"):
        return Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hipwright"


def device_graphs() -> bool:
    """Whether drop-ins replay graphs of a GPU (docs/library.md): unless $HIPWRIGHT_DEVICE_GRAPHS is 0."""
    return os.environ.get("HIPWRIGHT_DEVICE_GRAPHS", "") != "0"


def outage_seconds() -> float:
    """How long a model's provider may fail every call before a run pauses: $HIPWRIGHT_OUTAGE_SECONDS, else 600."""
    text = os.environ.get("HIPWRIGHT_OUTAGE_SECONDS", "")
    try:
        seconds = float(text or 600)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise BadInput(f"HIPWRIGHT_OUTAGE_SECONDS={text} is not a number of seconds")
    return seconds


def simulated_rocm() -> Path | None:
    """The ROCm whose GPU is software: $ROCM_PATH where that is such a folder (docs/rocm-target.md), else None."""
    named = os.environ.get("ROCM_PATH")
    return Path(named) if named and (Path(named) / SIMULATED_ROCM).is_file() else None


def simulated_gpu() -> dict[str, Any]:
    """{"architecture", "reads": folders that its compilers need} of `simulated_rocm`; {} without one."""
    folder = simulated_rocm()
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((folder / SIMULATED_ROCM).read_text()))
    return {}
