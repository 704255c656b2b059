"""What several benchmarks share: options, the task host, a task's graph, files of programs, JSON lines."""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hipwright.capture.graph import Graph
from hipwright.device import topology
from hipwright.errors import BadInput
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.task import open_task

ROOT = Path(__file__).resolve().parents[1]


def add_target(options: argparse.ArgumentParser, *choices: str) -> None:
    """Adds `--target`, which is "cuda" by default."""
    options.add_argument("--target", default="cuda", choices=choices or ("cuda", "rocm"))


def positive(text: str) -> int:
    """The type of an option that counts from 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 on")
    return int(text)


def require_gpu(target: str) -> None:
    """Raises BadInput where the target is a GPU and there is none of its kind."""
    if target != "cpu" and not topology.find(target):
        raise BadInput(f"no {target} GPU here", hint="see `hipwright doctor`")


def require_files(paths: Iterable[Path], hint: str = "") -> None:
    """Raises BadInput for the first path that is no file."""
    if missing := [path for path in paths if not path.is_file()]:
        raise BadInput(f"{missing[0]} is no file", hint=hint)


def relative(path: Path) -> str:
    """A path from the repository's root where it is below it."""
    full = path.resolve()
    return str(full.relative_to(ROOT)) if full.is_relative_to(ROOT) else str(path)


def task_host() -> Zygote:
    """The process that loads tasks, to be used as a context manager."""
    return Zygote(("torch", "hipwright.task.host.warm"), name="task host")


def first_graph(path: Path, host: Zygote) -> Graph:
    """The graph of a task file at its first workload."""
    with open_task(path, host) as handle:
        return Graph.from_dict(handle.capture(handle.task.workloads[0].name))


def read_programs(path: Path) -> dict[str, list[Program]]:
    """Programs by their task's path from the repository's root, as `python -m benchmarks programs` writes them.

    Tasks are in order of their paths, the programs of each in the file's. Raises BadInput where there is no such file.
    """
    require_files([path], hint="python -m benchmarks programs writes one")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: row["task"])
    return {
        task: [Program(text=row["text"], knobs=row["knobs"]) for row in of]
        for task, of in itertools.groupby(rows, key=lambda row: row["task"])
    }


def append_json(path: Path | None, row: Mapping[str, Any]) -> None:
    """Appends a row to a file of JSON lines; does nothing without a file."""
    if path is not None:
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def json_rows(path: Path, needs: Iterable[str] = ("task",)) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, compressed or not. Raises BadInput for another file, and for rows of other
    files: those that neither failed nor have the keys that are needed."""
    data = path.read_bytes()
    try:
        text = lzma.decompress(data) if path.suffix == ".xz" else data
        found = [json.loads(line) for line in text.decode().splitlines()]
    except (ValueError, lzma.LZMAError) as error:
        raise BadInput(f"{path} is no file of JSON lines: {error}") from error
    for number, row in enumerate(found, 1):
        missing = [key for key in needs if not (isinstance(row, dict) and ("failed" in row or key in row))]
        if missing:
            raise BadInput(f"{path}, line {number}: no {missing[0]!r}", hint="another command wrote this file")
    return found
