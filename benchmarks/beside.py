"""Is a program written by hand faster than the engine's own? Raw times of several, side by side.

    python -m benchmarks.beside TASK PROGRAM... [--out FILE] [--target cuda]

Programs (files as `hipwright optimize --out DIR` writes them, DIR/program.py) are timed in turn with the engine's
default, torch.compile, eager and a copy of as many bytes, as benchmarks/knobs.py times settings: the way to learn what
a change of a template would bring before it is written. Begin with the engine's own text (`hipwright optimize TASK
--target cpu --budget 1 --out DIR`), change it, and see. Nothing is judged: results are only compared with eager's,
roughly. The files' kernels run in this process: for your own programs, not for a candidate. FILE gets a JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.knobs import ROUNDS, Machine, Timed, shown
from hipwright.capture.graph import Graph
from hipwright.device import topology
from hipwright.engine import write
from hipwright.errors import BadInput, HipwrightError
from hipwright.program import parse
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.torchio import full_precision


def read(path: Path) -> Program:
    """A program with its knobs' defaults. Raises BadInput."""
    text = path.read_text()
    try:
        return Program(text=text, knobs={name: knob.default for name, knob in parse(text).knobs.items()})
    except HipwrightError as error:
        raise BadInput(f"{path}: {error.message}") from None


def measure(machine: Machine, task: Path, host: Zygote, given: Mapping[str, Program], rounds: int) -> dict[str, Any]:
    """As knobs.measure, of programs by name. Raises BadInput where the default program does not run."""
    with open_task(task, host) as handle:
        graph = Graph.from_dict(handle.capture(handle.task.workloads[0].name))
    timed = Timed(machine, task, ("eager", "copy") if machine.target == "cpu" else ("eager", "compile", "copy"))
    timed.build({"default": write(graph, {}), **given})
    return timed.row(task, timed.turns(list(timed.sides), rounds))


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all programs were timed, 1 when one was refused or the task cannot be measured."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("task", type=Path)
    options.add_argument("programs", nargs="+", type=Path)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--out", type=Path)
    options.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    chosen = options.parse_args(argv)
    if missing := [path for path in (chosen.task, *chosen.programs) if not path.is_file()]:
        options.error(f"{missing[0]} is no file")
    if chosen.target != "cpu" and not topology.find(chosen.target):
        options.error(f"no {chosen.target} GPU here")
    full_precision()  # as the suite measures
    try:
        with ExitStack() as stack:
            given = {str(path): read(path) for path in chosen.programs}
            folder = stack.enter_context(TemporaryDirectory())
            machine = stack.enter_context(Machine(chosen.target, BuildCache(Path(folder))).opened())
            host = stack.enter_context(Zygote(("torch", "hipwright.task.host.warm"), name="task host"))
            told = measure(machine, chosen.task, host, given, chosen.rounds)
    except (HipwrightError, RuntimeError) as error:  # torch's own: no memory, a fault of the device
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    print(shown(told, len(given) + 1))
    for name, why in told["refused"].items():
        print(f"  {name}: refused: {why}")
    if chosen.out is not None:
        with chosen.out.open("a") as out:
            out.write(json.dumps(told) + "\n")
    return 1 if told["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
