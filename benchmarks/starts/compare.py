"""CUDA and HIP kernels as starts: each one judged, and the search's answer compared with it.

    python -m benchmarks starts [--target cuda]... [--budget 12] [--only PATTERN] [--small] [--out FILE]

The files are those of tests/starts, by task at the sizes of `SIZES`; --small: at their tests' sizes, for targets that
are not measured. FILE gets a JSON line for each file; files that it holds already are left out, so a run goes on where
it ended. The last line has the geometric mean of the speedups over the starts. Exit code 1 when a start was refused.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, append_json, positive
from hipwright.api.inputs import task_source
from hipwright.api.optimize import SearchRequest, run_search
from hipwright.errors import BadInput, HipwrightError
from hipwright.targets import TARGETS

STARTS = ROOT / "tests" / "starts"
SIZES: dict[str, tuple[str, str]] = {
    "add_relu": ("torch.randn(8192, 4096), torch.randn(8192, 4096)", ""),
    "attention": ("torch.randn(64, 1024, 32), torch.randn(64, 1024, 32), torch.randn(64, 1024, 32)", ""),
    "bias_silu": ("torch.randn(8192, 4096)", "4096"),
    "conv1d": ("torch.randn(4096, 8192)", "5"),
    "conv2d": ("torch.randn(32, 32, 56, 56)", "32, 64"),
    "cumsum": ("torch.randn(16384, 1000)", ""),
    "dot": ("torch.randn(1 << 25), torch.randn(1 << 25)", ""),
    "gather_rows": ("torch.randint(0, 50000, (65536,))", "50000, 512"),
    "gelu_scale": ("torch.randn(8192, 4096)", "0.75"),
    "half_add": ("torch.randn(8192, 8192).half(), torch.randn(8192, 8192).half()", ""),
    "histogram": ("torch.randint(0, 24, (1 << 22,))", "24"),
    "l2_rows": ("torch.randn(16384, 2048)", ""),
    "layernorm": ("torch.randn(16384, 2048)", "2048"),
    "linear_relu": ("torch.randn(4096, 1024)", "1024, 1024"),
    "matmul": ("torch.randn(2048, 2048), torch.randn(2048, 2048)", ""),
    "maxpool": ("torch.randn(64, 64, 112, 112)", ""),
    "rmsnorm": ("torch.randn(16384, 2048)", "2048, 1e-5"),
    "row_argmax": ("torch.randn(16384, 2048)", ""),
    "row_max": ("torch.randn(16384, 2048)", ""),
    "row_sum": ("torch.randn(16384, 2048)", ""),
    "softmax": ("torch.randn(16384, 2048)", ""),
    "transpose": ("torch.randn(8192, 8192)", ""),
    "variance": ("torch.randn(16384, 2048)", ""),
}
"""By task: the items of get_inputs and of get_init_inputs."""


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--target", action="append", choices=TARGETS.names())
    options.add_argument("--budget", type=positive, default=12)
    options.add_argument("--only", default="*")
    options.add_argument("--small", action="store_true")
    options.add_argument("--out", type=Path)


def run(options: argparse.Namespace) -> int:
    """0 when every start was verified, 1 when one was refused."""
    files = [path for path in start_files() if fnmatch.fnmatch(f"{path.parent.name}/{path.name}", options.only)]
    if not files:
        raise BadInput(f"no file of tests/starts matches {options.only}")
    rows = known_rows(options.out)
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            name = f"{path.parent.name}/{path.name}"
            if name not in rows:
                rows[name] = measure(name, path, Path(folder), options)
                append_json(options.out, rows[name])
            print(described(rows[name]), flush=True)
    gains = [row["speedup"] for row in rows.values() if row["speedup"]]
    mean = math.exp(sum(map(math.log, gains)) / len(gains)) if gains else math.nan
    passed = sum(row["status"] == "pass" for row in rows.values())
    print(f"{passed} of {len(rows)} starts verified; the answers are {mean:.2f} times as fast over {len(gains)}")
    return 0 if passed == len(rows) else 1


def start_files() -> list[Path]:
    """The files that are to be verified."""
    return sorted([*STARTS.glob("cuda/*.cu"), *STARTS.glob("hip/*.hip")])


def task_file(path: Path) -> Path:
    """The task of a file: the longest name that the file's begins with."""
    tasks = {one.stem: one for one in STARTS.glob("tasks/*/*.py")}
    return tasks[max((name for name in tasks if path.stem.startswith(name)), key=len)]


def at_size(source: str, inputs: str, init_inputs: str) -> str:
    """A task's text with other inputs and arguments of its Model."""
    source = re.sub(r"(def get_inputs\(\):\n    return )\[.*\]", rf"\1[{inputs}]", source)
    return re.sub(r"(def get_init_inputs\(\):\n    return )\[.*\]", rf"\1[{init_inputs}]", source)


def measure(name: str, path: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One search from a file."""
    task = task_file(path)
    if not options.small:
        text = at_size(task.read_text(), *SIZES[task.stem])
        task = folder / task.name
        task.write_text(text)
    targets = tuple(options.target or ("cuda",))
    row: dict[str, Any] = {"file": name, "task": task.stem, "targets": targets, "status": "refused", "speedup": None}
    try:
        request = SearchRequest(task_source(task), targets=targets, budget=options.budget, start=path)
        result = run_search(request)
    except HipwrightError as error:
        return {**row, "message": error.message}
    assert result.start is not None
    winner = result.evaluation.score if result.evaluation is not None and result.passed else None
    return {**row, **result.start.to_dict(), "notes": len(result.start.notes), "winner": winner, "run": result.run}


def described(row: Mapping[str, Any]) -> str:
    """A row as a line."""
    times = f"{row.get('score') or math.nan:10.2f} {row.get('winner') or math.nan:10.2f}"
    kept = " (the start)" if row.get("answer") else ""
    kind = row.get("score_kind", "")
    return f"{row['file']:28} {row['status']:12} {times} µs {row['speedup'] or math.nan:7.2f}x {kind}{kept}"


def known_rows(path: Path | None) -> dict[str, dict[str, Any]]:
    """The rows that a file holds, by name."""
    if path is None or not path.is_file():
        return {}
    return {row["file"]: row for row in map(json.loads, path.read_text().splitlines())}
