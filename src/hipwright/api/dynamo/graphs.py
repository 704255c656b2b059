"""The compiled graphs of this process: each answered once, run by its program or eager, and counted."""

from __future__ import annotations

import queue
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from hipwright.api.dynamo.graph_task import GraphTask, graph_task
from hipwright.api.dynamo.machines import KEPT
from hipwright.api.dynamo.options import BackendOptions
from hipwright.api.inputs import TaskSource
from hipwright.api.live.answers import answer, archived
from hipwright.api.live.callable import program_of
from hipwright.api.live.module import FallbackWarning, ProgramCall
from hipwright.api.result import Result
from hipwright.errors import GuardFailed, HipwrightError, InfrastructureError

_lock = threading.Lock()
_made: list[CompiledGraph] = []


class CompiledGraph:
    """One graph of AOTAutograd: what answered it, and what its calls were.

    part: "inference", "forward" or "backward". status: "new" before its first call, "searching", "verified", or
    "eager", with `why`. result: the search's. program_calls and fallbacks (by reason) count its calls.
    """

    def __init__(self, module: GraphModule, part: str, static: Sequence[int], options: BackendOptions) -> None:
        self.part, self.options, self.status, self.why = part, options, "new", ""
        self.result: Result | None = None
        self.program_calls, self.fallbacks = 0, Counter[str]()
        self._module, self._static = module, tuple(static)
        self._task: GraphTask | None = None
        self._symbols: list[tuple[Any, int, int | None]] | None = None
        self._program: ProgramCall | None = None
        with _lock:
            self.name = f"{part}_{len(_made)}"
            _made.append(self)

    def __call__(self, args: list[Any]) -> Any:
        """The graph's results. args: its arguments; the list is emptied, so that their memory can be freed."""
        given = list(args)
        args.clear()
        if self.status == "new":
            self._begin(given)
        if self._program is not None:
            try:
                return self._run(given)
            except GuardFailed as error:
                self.fallbacks[f"the program declines these sizes: {error.message}"] += 1
            except HipwrightError as error:
                self._give_up(f"the program failed: {error.message}")
        else:
            self.fallbacks[self.why or self.status] += 1
        return self._module(*given)

    # ---------------------------------------------------------------- the answer

    def _begin(self, args: Sequence[Any]) -> None:
        self.status = "searching"
        try:
            self._task = graph_task(f"{self.part} graph", self._module, args, self._static)
            if self._task.task.draws and not any(_on_gpu(one) for one in args):
                raise HipwrightError("it draws random numbers, which a contained process draws for itself")
        except HipwrightError as error:
            self._give_up(error.message)
            return
        if self.options.background:
            _in_background(self)
        else:
            self.find()

    def find(self) -> None:
        """Takes the answer from the archive, or searches for it. Errors leave the graph eager, with the reason."""
        assert self._task is not None
        try:
            self._answer(self._task)
        except InfrastructureError as error:
            hint = f" ({error.hint})" if error.hint else ""
            warnings.warn(f"{self.name} runs eager: {error.message}{hint}", FallbackWarning, stacklevel=2)
            self._give_up(error.message)
        except HipwrightError as error:
            self._give_up(error.message)

    def _answer(self, task: GraphTask) -> None:
        request = self.options.request(TaskSource("graph", text=task.task.text))
        result = archived(request)
        if result is None and self.options.answers == "archive":
            self._give_up("the archive has no answer")
            return
        if result is None:
            with KEPT.use(request.targets or (), unsafe=request.unsafe) as machine:
                result = answer(request, on=machine, fresh=True)
        self.result = result
        captured = self.options.device_graphs and self.part == "inference"
        program, why = program_of(task.task, result, graphs=captured)
        if program is None:
            self._give_up(why)
        else:
            self._program, self.status = program, "verified"

    def _give_up(self, why: str) -> None:
        self._program, self.status, self.why = None, "eager", why
        self.fallbacks[why] += 0

    # ---------------------------------------------------------------- a call of the program

    def _run(self, args: Sequence[Any]) -> tuple[Any, ...]:
        task, program = self._task, self._program
        assert task is not None and program is not None
        for place, number in task.fixed.items():
            if args[place] != number:
                raise GuardFailed(f"a size is {args[place]}, and the program is for {number}")
        inputs = [args[place] for place in task.inputs]
        held = {name: args[one] if isinstance(one, int) else one for name, one in task.state.items()}
        if any(one.device.type != program.device for one in (*inputs, *held.values())):
            raise GuardFailed(f"a tensor is not on {program.device}")
        with torch.no_grad():
            outputs, _ = program(inputs, held)
            sizes = self._sizes(args)
            found = [self._value(one, outputs, args, sizes) for one in task.results]
        self.program_calls += 1
        return tuple(found)

    def _sizes(self, args: Sequence[Any]) -> dict[Any, int]:
        """The numbers of the graph's symbols in this call."""
        if self._symbols is None:
            self._symbols = list(_symbols(self._module))
        return {
            symbol: int(args[place] if dim is None else args[place].shape[dim]) for symbol, place, dim in self._symbols
        }

    def _value(self, one: Any, outputs: Sequence[Any], args: Sequence[Any], sizes: dict[Any, int]) -> Any:
        if one.argument is not None:
            return args[one.argument]
        if one.output is None:
            return _number(one.value, sizes)
        tensor = outputs[one.output]
        strides = tuple(_number(step, sizes) for step in one.strides)
        if tensor.stride() == strides or tensor.numel() < 2:
            return tensor
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    def __repr__(self) -> str:
        run = f", run {self.result.run}" if self.result is not None else ""
        why = f": {self.why}" if self.why else ""
        return f"CompiledGraph({self.name}, {self.status}{why}{run}, {self.program_calls} calls of the program)"


def _symbols(module: GraphModule) -> Iterator[tuple[Any, int, int | None]]:
    """(a symbol, the place of an argument that has it, as a number or in which dimension)."""
    nodes = (node for node in module.graph.nodes if node.op == "placeholder")
    for place, node in enumerate(nodes):
        known = node.meta.get("val")
        sizes = enumerate(known.shape) if isinstance(known, torch.Tensor) else [(None, known)]
        for dim, size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                yield size.node.expr, place, dim


def _number(value: Any, sizes: dict[Any, int]) -> Any:
    """A number as it is; an expression of sizes as its value."""
    return int(value.xreplace(sizes)) if hasattr(value, "xreplace") else value


def _on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def all_graphs() -> list[CompiledGraph]:
    """All graphs that torch.compile has given to the backend in this process, in order."""
    with _lock:
        return list(_made)


# ---------------------------------------------------------------- in the background

_waiting: queue.Queue[CompiledGraph] = queue.Queue()
_worker: list[threading.Thread] = []


def _in_background(graph: CompiledGraph) -> None:
    with _lock:
        if not _worker:
            thread = threading.Thread(target=_work, name="hipwright graphs", daemon=True)
            _worker.append(thread)
            thread.start()
    _waiting.put(graph)


def _work() -> None:
    while True:
        graph = _waiting.get()
        try:
            graph.find()
        except Exception as error:  # our own fault must not end the thread: the graph stays eager
            graph._give_up(f"hipwright failed: {error}")
        finally:
            _waiting.task_done()


def wait() -> None:
    """Waits for all graphs that are answered in the background."""
    _waiting.join()
