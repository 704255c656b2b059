"""Which settings of the engine's knobs are fastest: raw times of many variants of a task's program, side by side.

    python benchmarks/knobs.py TASK... [--set KEY=V,V...]... [--seconds S] [--out FILE] [--target cuda]

Every choice and knob of the engine's space is varied one at a time from the default, then the best settings are joined
one after the other, each kept where it helps; --set tries all combinations of what it names instead. All variants of a
task are timed in turn with torch.compile, eager and a copy of as many bytes, over rotating inputs, from graphs: eleven
blocks of about a millisecond each. Nothing is judged: results are only compared with eager's, roughly. The programs are
the engine's own, and the task's code runs in this process: for your own tasks, not for a candidate. FILE gets a JSON
line a task.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hipwright.capture.graph import Graph
from hipwright.device import topology
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.device.open import open_driver
from hipwright.device.rotation import Rotation
from hipwright.engine import space, write
from hipwright.errors import BadInput, HipwrightError
from hipwright.measure.roofline import rotation
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.records import Build, Program
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.task.device.side import CopySide
from hipwright.task.host import state as states
from hipwright.task.host.load import TaskModule
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool
from hipwright.torchio import full_precision
from hipwright.verify.worker.trees import tensors_of

SEED = 3
ROUNDS = 11
BLOCK_MS = 1.0
JOINED = 4  # settings that are tried together with the best one
OFF = 0.02  # of the largest value: further from eager than any honest rounding here
Settings = dict[str, Any]


def varied(graph: Graph, grid: Mapping[str, Sequence[Any]]) -> dict[str, Settings]:
    """The default, then every other setting one at a time, or all combinations of a grid; by their words."""
    if grid:
        found = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    else:
        found = [{k: v} for k, choice in space(graph).items() for v in choice.options if v != choice.default]
    return {_words(chosen): chosen for chosen in [{}, *found]}


def _words(chosen: Settings) -> str:
    return " ".join(f"{k}={v}" for k, v in chosen.items()) or "default"


def programs(graph: Graph, settings: Mapping[str, Settings]) -> dict[str, Program]:
    """Different programs by their settings' words; knobs may have values that the space does not offer."""
    found: dict[str, Program] = {}
    known: set[tuple[str, str]] = set()
    for words, chosen in settings.items():
        program = write(graph, chosen)
        own, text = parse(program.text).knobs, program.text
        more = {k: int(v) for k, v in chosen.items() if k in own}
        for name, value in more.items():
            if value not in own[name].choices:
                head = f"{name} = knob({own[name].default}, choices=["
                text = text.replace(head, f"{head}{value}, ")
        made = Program(text=text, knobs={**program.knobs, **more})
        key = text, json.dumps(parse(text).defines(made.knobs), sort_keys=True)
        if key not in known:
            known.add(key)
            found[words] = made
    return found


class Machine:
    """Where variants are built and run. target: "cuda", or "cpu" to try the script."""

    def __init__(self, target: str, cache: BuildCache) -> None:
        self.target, self._cache = target, cache
        self.device = torch.device("cpu" if target == "cpu" else f"{target}:0")
        self._pool: CompilePool | None = None
        self._driver: Any = None
        self._arch = ""

    @contextmanager
    def opened(self) -> Iterator[Machine]:
        """Compilers and the driver."""
        with ExitStack() as stack:
            if self.target != "cpu":
                gpu = topology.find(self.target)[0]
                self._driver, self._arch = open_driver(self.target, gpu.index), gpu.architecture
                host = stack.enter_context(nvrtc.zygote())
                count = max(2, len(os.sched_getaffinity(0)) - 2)
                self._pool = stack.enter_context(CompilePool(host, count))
            yield self

    def build(self, program: Program) -> Build:
        """Compile a program with its knobs."""
        parsed = parse(program.text)
        defines = parsed.defines(program.knobs)
        if self._pool is None:
            return cpu.build(parsed.hip, defines, cache=self._cache)
        return nvrtc.build(parsed.hip, defines, arch=self._arch, pool=self._pool, cache=self._cache)

    def call(self, program: Program, build: Build, table: Any) -> Callable[..., Any]:
        """The program as a function of forward's arguments."""
        parsed = parse(program.text)
        launcher: Any
        if self._driver is None:
            launcher = CpuLauncher(str(self._cache.path(build.blob)), parsed.signatures)
        else:
            code, where = self._cache.get(build.blob), str(self.device)
            launcher = GpuLauncher(self._driver, code, parsed.signatures, device=where, poison=None, zones=False)
            launcher.record = False
        return lower(parsed, program.knobs, table, launcher, device=str(self.device)).forward

    def cache_bytes(self) -> int:
        """Of the last-level cache."""
        if self.target == "cpu":
            return 1 << 20
        return int(torch.cuda.get_device_properties(self.device).L2_cache_size)


class Timed:
    """One task: its sides over the same slots of inputs."""

    def __init__(self, machine: Machine, path: Path, baselines: Sequence[str]) -> None:
        self.machine = machine
        self.model, inputs = _opened(TaskModule(str(path), path.read_text()), machine.device)
        given = [t.to(machine.device) if isinstance(t, torch.Tensor) else t for t in inputs]
        with torch.no_grad():
            self.right = [t.clone() for t in tensors_of(self.model(*given))]
        size = sum(t.nbytes for t in tensors_of(given))
        self.count = max(2, rotation(size, machine.cache_bytes(), 8 << 30))
        copies = [[t.clone() if isinstance(t, torch.Tensor) else t for t in given] for _ in range(self.count - 1)]
        self.slots = [given, *copies]
        self.table = states.build(self.model, leaf=lambda tensor: tensor.detach())
        on_gpu = machine.device.type == "cuda"
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None
        self.stream = torch.cuda.Stream() if on_gpu else None  # what one capture gives back another takes on its stream
        self.sides: dict[str, Any] = {}
        self.off: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        if "copy" in baselines:
            moved = size + sum(t.nbytes for t in [*self.right, *self.model.parameters()])
            self._add("copy", CopySide(moved, self.count, machine.device, graph=True))
        if "eager" in baselines:
            self._add("eager", self._turns(self.model))
        if "compile" in baselines:
            try:
                self._add("compile", self._turns(torch.compile(self.model, dynamic=False)))
            except Exception as error:  # whatever the compiler refuses: the variants are compared all the same
                self.refused["compile"] = f"{type(error).__name__}: {error}"[:160]

    def _turns(self, run: Callable[..., Any]) -> Rotation:
        """Graphs share their memory, outputs too: dozens of them would not fit beside one another."""
        return Rotation(
            lambda slot: run(*self.slots[slot]),
            self.count,
            self.machine.device,
            graph=True,
            pool=self.pool,
            stream=self.stream,
            keep_outputs=False,
        )

    def _add(self, name: str, side: Any) -> None:
        side.prepare(1)
        self.sides[name] = side

    def add(self, name: str, program: Program, build: Build) -> None:
        """A variant, unless it is refused; how far its results are off is noted."""
        if not build.ok:
            self.refused[name] = (build.log.strip().splitlines() or ["?"])[0][:160]
            return
        try:
            run = self.machine.call(program, build, self.table)
            with torch.no_grad():
                found = tensors_of(run(*self.slots[0]))
            self.off[name] = max((_off(a, b) for a, b in zip(found, self.right, strict=True)), default=0.0)
            self._add(name, self._turns(run))
        except HipwrightError as error:
            self.refused[name] = error.message[:160]

    def build(self, made: Mapping[str, Program]) -> None:
        """Variants side by side, with the one named "default". Raises BadInput where that does not run."""
        with ThreadPoolExecutor(os.cpu_count() or 2) as workers:
            for (name, program), build in zip(
                made.items(), workers.map(self.machine.build, made.values()), strict=True
            ):
                self.add(name, program, build)
        if "default" not in self.sides:
            raise BadInput(f"the engine's own choices do not run: {self.refused['default']}")

    def row(self, path: Path, told: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
        """{"task", "us": {side: median}, "ratio": {side: default's time over its own}, "off", "refused", "slots"}."""
        return {
            "task": str(path),
            "us": {n: us for n, (us, _) in told.items()},
            "ratio": {n: r for n, (_, r) in told.items()},
            "off": {name: off for name, off in self.off.items() if not off <= OFF},
            "refused": self.refused,
            "slots": self.count,
        }

    def turns(self, names: Sequence[str], rounds: int) -> dict[str, tuple[float, float]]:
        """{side: (microseconds a call, the default's time over its own)}, medians over blocks of about BLOCK_MS in
        turn, each round in another order."""
        calls = {name: max(1, round(BLOCK_MS / max(_each(self.sides[name], 1), 1e-4))) for name in names}
        found: dict[str, list[float]] = {name: [] for name in names}
        order, rng = list(names), random.Random(SEED)
        for _ in range(rounds):
            rng.shuffle(order)
            for name in order:
                found[name].append(_each(self.sides[name], calls[name]) * 1e3)
        base = found["default"]
        return {
            name: (median(some), median(a / b for a, b in zip(base, some, strict=True))) for name, some in found.items()
        }


def _opened(file: TaskModule, device: torch.device) -> tuple[torch.nn.Module, list[Any]]:
    """(model, inputs), made on the device where the file can: gigabytes take the processor long."""
    try:
        with device:
            return file.model(SEED).to(device), file.inputs(SEED)
    except HipwrightError:
        return file.model(SEED).to(device), file.inputs(SEED)


def _each(side: Any, calls: int) -> float:
    """Milliseconds of a call."""
    told = side.block(calls)
    return float(told["device_ms"] or told["host_ms"]) / float(told["calls"])


def _off(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference, as a share of the largest finite value."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return float("inf")
    a, b = found.double().nan_to_num(), right.double().nan_to_num()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) if b.numel() else 0.0


def helping(settings: Mapping[str, Settings], speeds: Mapping[str, float]) -> list[Settings]:
    """The best value of each key that was faster than the default, the largest gain first. speeds: over the
    default's."""
    best: dict[str, tuple[float, Any]] = {}
    for name, chosen in settings.items():
        if len(chosen) == 1 and speeds.get(name, 0.0) > 1.0:
            ((key, value),) = chosen.items()
            best[key] = max(best.get(key, (1.0, None)), (speeds[name], value), key=lambda one: one[0])
    return [{key: value} for key, (_, value) in sorted(best.items(), key=lambda item: -item[1][0])]


def join(
    machine: Machine, graph: Graph, timed: Timed, baselines: Sequence[str], several: Sequence[Settings], rounds: int
) -> dict[str, tuple[float, float]]:
    """{settings that were tried together: as `Timed.turns`}: one more at a time, at most JOINED, kept where it is
    faster beside what is kept already; knobs that are each good alone are often not so together."""
    found: dict[str, tuple[float, float]] = {}
    kept = dict(several[0])
    for more in several[1 : JOINED + 1]:
        tried = {**kept, **more}
        name = _words(tried)
        made = programs(graph, {name: tried})
        timed.add(name, made[name], machine.build(made[name]))
        if name not in timed.sides or timed.off[name] > OFF:
            continue
        now = timed.turns([*baselines, "default", _words(kept), name], rounds)
        found[name] = now[name]
        kept = tried if now[name][1] > now[_words(kept)][1] else kept
    return found


def measure(
    machine: Machine, path: Path, host: Zygote, grid: Mapping[str, Sequence[Any]], rounds: int
) -> dict[str, Any]:
    """One task, as `Timed.row`; settings that are joined are timed later, beside the default and the baselines alone.

    Raises BadInput where the default program does not run.
    """
    with open_task(path, host) as handle:
        graph = Graph.from_dict(handle.capture(handle.task.workloads[0].name))
    settings = varied(graph, grid)
    timed = Timed(machine, path, ("eager", "copy") if machine.target == "cpu" else ("eager", "compile", "copy"))
    baselines = list(timed.sides)
    timed.build(programs(graph, settings))
    told = timed.turns(list(timed.sides), rounds)
    right = {n: ratio for n, (_, ratio) in told.items() if timed.off.get(n, 0.0) <= OFF}
    several = [] if grid else helping(settings, right)
    if len(several) > 1:
        told |= join(machine, graph, timed, baselines, several, rounds)
    return timed.row(path, told)


def shown(told: Mapping[str, Any], most: int = 6) -> str:
    """A task's best settings, and what they stand beside."""
    us, names = told["us"], [n for n in told["us"] if n not in ("eager", "compile", "copy")]
    beside = ", ".join(f"{n} {us[n]:.1f}" for n in ("default", "eager", "compile", "copy") if n in us)
    lines = [f"{told['task']}: {beside} us; {len(names)} variants, {len(told['refused'])} refused"]
    for name in sorted(names, key=lambda n: us[n])[:most]:
        doubt = f"  OFF by {told['off'][name]:.2g}" if name in told["off"] else ""
        lines.append(f"  {us[name]:10.2f} us  {told['ratio'][name]:.3f} of default's speed  {name}{doubt}")
    return "\n".join(lines)


def _grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    words: dict[str, Any] = {"True": True, "False": False}
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, _, values = text.rpartition("=")
        found[key] = [int(v) if v.isdigit() else words.get(v, v) for v in values.split(",")]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every task was measured, 1 when time ran out or one failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tasks", nargs="+", type=Path)
    options.add_argument("--set", action="append", default=[], metavar="KEY=V,V", help="try all combinations of these")
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--out", type=Path)
    options.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    chosen = options.parse_args(argv)
    if missing := [task for task in chosen.tasks if not task.is_file()]:
        options.error(f"{missing[0]} is no file")
    if odd := [text for text in chosen.set if "=" not in text]:
        options.error(f"--set {odd[0]}: write it as KEY=V,V")
    if chosen.target != "cpu" and not topology.find(chosen.target):
        options.error(f"no {chosen.target} GPU here")
    return _all(chosen, time.monotonic() + chosen.seconds)


def _all(chosen: argparse.Namespace, end: float) -> int:
    """Task after task, until `end`."""
    code = 0
    full_precision()  # as the suite measures
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        machine = stack.enter_context(Machine(chosen.target, BuildCache(Path(folder))).opened())
        host = stack.enter_context(Zygote(("torch", "hipwright.task.host.warm"), name="task host"))
        for number, task in enumerate(chosen.tasks):
            if time.monotonic() > end:
                print(f"the time is over: {len(chosen.tasks) - number} tasks left", file=sys.stderr)
                return 1
            try:
                told = measure(machine, task, host, _grid(chosen.set), chosen.rounds)
            except (HipwrightError, RuntimeError) as error:  # torch's own: no memory, a fault of the device
                print(f"{task}: {str(error).splitlines()[0]}", file=sys.stderr)
                code = 1
                continue
            print(shown(told), flush=True)
            if chosen.out is not None:
                with chosen.out.open("a") as out:
                    out.write(json.dumps(told) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
