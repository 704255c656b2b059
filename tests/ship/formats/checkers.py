"""The published checkers of formats, each in a folder of its own, installed once (tests marked `exhaustive`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FLASHINFER = ("flashinfer-bench==0.1.2", "pydantic", "safetensors")


def installed(*packages: str, dependencies: bool = True) -> Path:
    """A folder for sys.path with these packages from the index."""
    place = Path(tempfile.gettempdir()) / "hipwright-checkers" / packages[0].replace("==", "-")
    if not place.is_dir():
        more = [] if dependencies else ["--no-deps"]
        command = [sys.executable, "-m", "pip", "install", "-q", *more, "--target", str(place), *packages]
        subprocess.run(command, check=True)
    return place


def run(place: Path, code: str) -> None:
    """Runs Python text with the folder last on its path, after torch's; fails with what it says."""
    whole = f"import sys\nsys.path.append({str(place)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
