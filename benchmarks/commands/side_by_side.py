"""Eight large tasks side by side on one GPU: all must be judged right, none for want of memory.

    python -m benchmarks side-by-side [--gb 20] [--target cuda] [--workers 8] [--only TEXT] [--out DIR]

Writes eight task files whose inputs and outputs have so many 10^9 bytes together, and runs `hipwright bench` on them,
each by the engine's first answer, strict. Prints a row for each: verdict, seconds of work, seconds that it waited for
the device's memory, speed. The exit code is 1 where a task does not pass. With --target cpu and a small --gb it needs
no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import ROOT, positive, require_gpu
from hipwright.errors import BadInput, WorkerError

_FILE = """{doc}

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]
"""
# name: (what it is, the constructor, forward, inputs, bytes of inputs and outputs for each row); {w}: the width
TASKS: dict[str, tuple[str, str, str, dict[str, str], int]] = {
    "scale_relu_fp32": ("Pointwise.", "pass", "torch.relu(x * 1.5 - 0.25)", {"x": "torch.randn({n}, 4096)"}, 8 * 4096),
    "row_softmax_bf16": (
        "Softmax of rows.",
        "pass",
        "torch.softmax(x, dim=-1)",
        {"x": "torch.randn({n}, 4096, dtype=torch.bfloat16)"},
        4 * 4096,
    ),
    "dot_rows_fp32": (
        "A small output of two large inputs.",
        "pass",
        "(a * b).sum(dim=1)",
        {"a": "torch.randn({n}, 4096)", "b": "torch.rand({n}, 4096)"},
        8 * 4096,
    ),
    "layer_norm_fp16": (
        "Layer norm.",
        "self.norm = nn.LayerNorm(2048, dtype=torch.float16)",
        "self.norm(x)",
        {"x": "torch.randn({n}, 2048, dtype=torch.float16)"},
        4 * 2048,
    ),
    "transpose_fp32": (
        "A transposed copy.",
        "pass",
        "(x.t() + 1.0).contiguous()",
        {"x": "torch.randn({n}, 4096)"},
        8 * 4096,
    ),
    "row_max_fp32": ("The largest of each row.", "pass", "x.amax(dim=1)", {"x": "torch.randn({n}, 4096)"}, 4 * 4096),
    "linear_bf16": (
        "A product with 4 x 4096 x 4096 bytes of weights at the most.",
        "self.linear = nn.Linear({w}, {w}, dtype=torch.bfloat16)",
        "self.linear(x)",
        {"x": "torch.randn({n}, {w}, dtype=torch.bfloat16)"},
        0,
    ),
    "conv3x3_fp16": (
        "A convolution of images of 64 channels.",
        "self.conv = nn.Conv2d(64, 64, 3, padding=1, dtype=torch.float16)",
        "self.conv(x)",
        {"x": "torch.randn({n}, 64, 64, 64, dtype=torch.float16)"},
        4 * 64**3,
    ),
}


def write_tasks(folder: Path, nbytes: float, only: str = "") -> list[Path]:
    """The task files, of about so many bytes of inputs and outputs each."""
    width = 4096 if nbytes >= 1e9 else 128
    found = []
    for name, (doc, init, body, inputs, row) in TASKS.items():
        if only not in name:
            continue
        sizes = {"n": max(round(nbytes / (row or 4 * width)), 8), "w": width}
        drawn = ", ".join(text.format(**sizes) for text in inputs.values())
        parts = {"doc": f'"""{doc}"""', "init": init.format(**sizes), "body": body, "inputs": drawn}
        path = folder / f"{name}.py"
        path.write_text(_FILE.format(**parts, names=", ".join(inputs)))
        found.append(path)
    return found


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--gb", type=float, default=20.0, metavar="N", help="10^9 bytes of inputs and outputs of each")
    options.add_argument("--target", default="cuda", choices=("cuda", "rocm", "cpu"))
    options.add_argument("--workers", type=positive, default=8)
    options.add_argument("--only", default="", metavar="TEXT", help="tasks whose name contains TEXT")
    options.add_argument("--out", type=Path, metavar="DIR", help="keeps tasks, rows and programs here")


def run(options: argparse.Namespace) -> int:
    """0 where every task passes, else 1."""
    require_gpu(options.target)
    if options.gb <= 0:
        raise BadInput(f"--gb {options.gb:g} is no size", hint="10^9 bytes, such as 20")
    with tempfile.TemporaryDirectory() as made:
        folder = options.out or Path(made)
        tasks = folder / "tasks"
        tasks.mkdir(parents=True, exist_ok=True)
        files = write_tasks(tasks, options.gb * 1e9, options.only)
        if not files:
            raise BadInput(f"no task's name contains {options.only!r}", hint=f"known: {', '.join(TASKS)}")
        start = time.perf_counter()
        _bench(tasks, folder / "bench", options)
        rows = {row["task"]: row for row in _rows(folder / "bench" / "rows.jsonl")}
        return _print([(file.stem, rows.get(file.stem)) for file in files], time.perf_counter() - start)


def _bench(tasks: Path, out: Path, options: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "hipwright", "bench", str(tasks), "--budget", "1", "--target", options.target]
    command += ["--workers", str(options.workers), "--out", str(out)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": _path()}, check=False)
    if not (out / "rows.jsonl").is_file():
        raise WorkerError(f"hipwright bench wrote no rows (exit code {done.returncode})", hint="see its messages")


def _path() -> str:
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT / "src"), *([known] if known else [])])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def _print(rows: list[tuple[str, dict[str, Any] | None]], seconds: float) -> int:
    table = Table("task", "verdict", "fault", "work s", "waited s", "versus eager", "message")
    right = 0
    for name, row in rows:
        if row is None:
            table.add_row(name, "no row", "", "", "", "", "")
            continue
        right += row["status"] == "pass"
        eager = row["speedups"].get("eager", {}).get("speedup")
        figures = [f"{row['seconds']:.1f}", f"{row['waited']:.1f}", "" if eager is None else f"{eager:.2f}"]
        table.add_row(name, row["status"], row["fault"] or "", *figures, row["message"][:120])
    Console().print(table)
    print(f"{right} of {len(rows)} pass, {seconds:.0f} s")
    return 0 if right == len(rows) else 1
