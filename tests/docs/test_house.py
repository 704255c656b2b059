"""The structure of the code stays within the limits of scripts/house.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_figure_is_within_its_limit() -> None:
    """`make house`: shared class names, fmt: skip, import circles, long files and functions, large folders."""
    argv = [sys.executable, str(ROOT / "scripts/house.py"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert len(found) == 6, done.stderr
    assert not {name: one["places"] for name, one in found.items() if one["value"] > one["limit"]}


def test_no_script_shadows_a_module_of_python() -> None:
    """The folder of a script comes before the standard library: a `numbers` of ours ended `import decimal`."""
    started = [path for top in ("benchmarks", "scripts", "examples") for path in (ROOT / top).rglob("*.py")]
    assert len(started) > 50
    assert [str(path) for path in started if path.stem in sys.stdlib_module_names] == []
