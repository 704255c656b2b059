"""Raw times of several sides of a task in turn: variants of its program, eager, torch.compile and a copy.

Sides run over the same rotating inputs, from CUDA graphs on a GPU, in blocks of about a millisecond. Results are only
compared with eager's, roughly; nothing is judged, and the task's code runs in this process.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.timing.runner import ProgramRunner
from hipwright.device.rotation import Rotation
from hipwright.errors import BadInput, HipwrightError
from hipwright.measure.roofline import rotation
from hipwright.records import Build, Program
from hipwright.task.device.side import CopySide
from hipwright.task.host import state as states
from hipwright.task.host.load import TaskModule
from hipwright.verify.worker.trees import tensors_of

SEED = 3
ROUNDS = 11
BLOCK_MS = 1.0
OFF = 0.02
"""The largest difference from eager, as a share of the largest value, that rounding may explain."""
Times = dict[str, tuple[float, float]]
"""{side: (microseconds a call, the default's time over the side's)}."""


class TimedSides:
    """The sides of one task over the same slots of inputs.

    compiled: torch.compile is one of the sides. off: how far a program's results are from eager's, as a share of the
    largest value; refused: why a side is missing.
    """

    def __init__(self, runner: ProgramRunner, path: Path, *, compiled: bool = True) -> None:
        self.runner = runner
        self.model, inputs = model_and_inputs(TaskModule(str(path), path.read_text()), runner.device)
        given = [t.to(runner.device) if isinstance(t, torch.Tensor) else t for t in inputs]
        with torch.no_grad():
            self.expected = [t.clone() for t in tensors_of(self.model(*given))]
        size = sum(t.nbytes for t in tensors_of(given))
        self.count = max(2, rotation(size, runner.cache_bytes(), 8 << 30))
        copies = [[t.clone() if isinstance(t, torch.Tensor) else t for t in given] for _ in range(self.count - 1)]
        self.slots = [given, *copies]
        self.state = states.build(self.model, leaf=lambda tensor: tensor.detach())
        on_gpu = runner.device.type == "cuda"
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None
        self.stream = torch.cuda.Stream() if on_gpu else None  # memory that one capture frees is reused on its stream
        self.sides: dict[str, Any] = {}
        self.off: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self._add_baselines(size, compiled)

    def _add_baselines(self, input_bytes: int, compiled: bool) -> None:
        moved = input_bytes + sum(t.nbytes for t in [*self.expected, *self.model.parameters()])
        self._add("copy", CopySide(moved, self.count, self.runner.device, graph=True))
        self._add("eager", self._rotation(self.model))
        if compiled and self.runner.target != "cpu":
            try:
                self._add("compile", self._rotation(torch.compile(self.model, dynamic=False)))
            except Exception as error:  # any refusal of the compiler: the variants are compared without it
                self.refused["compile"] = f"{type(error).__name__}: {error}"[:160]

    def _rotation(self, run: Callable[..., Any]) -> Rotation:
        """A side that calls `run` on the slots in turn. Graphs share their memory, outputs too: dozens of them would
        not fit beside one another."""
        return Rotation(
            lambda slot: run(*self.slots[slot]),
            self.count,
            self.runner.device,
            graph=True,
            pool=self.pool,
            stream=self.stream,
            keep_outputs=False,
        )

    def _add(self, name: str, side: Any) -> None:
        side.prepare(1)
        self.sides[name] = side

    def add(self, name: str, program: Program, build: Build) -> None:
        """Adds a program, or notes why it is refused; how far its results are off is noted."""
        if not build.ok:
            self.refused[name] = (build.log.strip().splitlines() or ["?"])[0][:160]
            return
        try:
            run = self.runner.function(program, build, self.state)
            with torch.no_grad():
                found = tensors_of(run(*self.slots[0]))
            self.off[name] = max((_difference(a, b) for a, b in zip(found, self.expected, strict=True)), default=0.0)
            self._add(name, self._rotation(run))
        except HipwrightError as error:
            self.refused[name] = error.message[:160]

    def build_all(self, programs: Mapping[str, Program], base: str = "default") -> None:
        """Builds programs side by side and adds them. Raises BadInput where the one that others are compared with
        (`base`) does not run."""
        with ThreadPoolExecutor(os.cpu_count() or 2) as workers:
            builds = workers.map(self.runner.build, programs.values())
            for (name, program), build in zip(programs.items(), builds, strict=True):
                self.add(name, program, build)
        if base not in self.sides:
            raise BadInput(f"the engine's own choices do not run: {self.refused.get(base, 'not among the programs')}")

    def times(self, names: Sequence[str], rounds: int, base: str = "default") -> Times:
        """Medians over blocks of about BLOCK_MS in turn, each round in another order. `base` is one of the names."""
        calls = {name: max(1, round(BLOCK_MS / max(_call_ms(self.sides[name], 1), 1e-4))) for name in names}
        found: dict[str, list[float]] = {name: [] for name in names}
        order, rng = list(names), random.Random(SEED)
        for _ in range(rounds):
            rng.shuffle(order)
            for name in order:
                found[name].append(_call_ms(self.sides[name], calls[name]) * 1e3)
        compared = found[base]
        return {
            name: (median(some), median(a / b for a, b in zip(compared, some, strict=True)))
            for name, some in found.items()
        }

    def row(self, path: Path, times: Times) -> dict[str, Any]:
        """{"task", "us": {side: median}, "ratio": {side: default's time over its own}, "off", "refused", "slots"}."""
        return {
            "task": str(path),
            "us": {name: us for name, (us, _) in times.items()},
            "ratio": {name: ratio for name, (_, ratio) in times.items()},
            "off": {name: off for name, off in self.off.items() if not off <= OFF},
            "refused": self.refused,
            "slots": self.count,
        }


def describe_row(row: Mapping[str, Any], most: int = 6) -> str:
    """A task's fastest settings beside the default and the baselines, in several lines of text."""
    us, names = row["us"], [n for n in row["us"] if n not in ("eager", "compile", "copy")]
    beside = ", ".join(f"{n} {us[n]:.1f}" for n in ("default", "eager", "compile", "copy") if n in us)
    lines = [f"{row['task']}: {beside} us; {len(names)} variants, {len(row['refused'])} refused"]
    for name in sorted(names, key=lambda n: us[n])[:most]:
        doubt = f"  OFF by {row['off'][name]:.2g}" if name in row["off"] else ""
        lines.append(f"  {us[name]:10.2f} us  {row['ratio'][name]:.3f} of default's speed  {name}{doubt}")
    return "\n".join(lines)


def model_and_inputs(file: TaskModule, device: torch.device) -> tuple[torch.nn.Module, list[Any]]:
    """(model, inputs), made on the device where the file allows it: the processor takes long to fill gigabytes."""
    try:
        with device:
            return file.model(SEED).to(device), file.inputs(SEED)
    except HipwrightError:
        return file.model(SEED).to(device), file.inputs(SEED)


def _call_ms(side: Any, calls: int) -> float:
    """Milliseconds of a call, from one block."""
    block = side.block(calls)
    return float(block["device_ms"] or block["host_ms"]) / float(block["calls"])


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a share of the largest finite value."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    a, b = found.double().nan_to_num(), expected.double().nan_to_num()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) if b.numel() else 0.0
