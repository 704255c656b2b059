"""The task host: the one process that runs a task file's own code. It also computes what outputs should be, so no
candidate ever shares its zygote."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from typing import Any

import torch

from hipwright.errors import TaskError
from hipwright.records import TensorSpec, Workload
from hipwright.sandbox import crash_page, lockdown
from hipwright.task import draw, sizes
from hipwright.task import state as states
from hipwright.task.load import SUPPORTED, TaskFile
from hipwright.task.reference import Reference, map_torch, named_leaves
from hipwright.tensors import Tree
from hipwright.torchio import tree_from_torch, tree_to_torch

_META_FROM = 1 << 24  # elements of inputs and parameters from which loading checks shapes only
_COSTLY = 1 << 22  # elements of inputs from which other shapes are drawn as such, not cut out
_PROBE_ELEMENTS = 1 << 20  # elements up to which a probe may run for real


class TaskHost:
    """Service of the sandbox. init: {"name": the file's name, "source": its text}.

    Methods take and return (header, bundle) as the sandbox has it; `TaskHandle` documents them.
    """

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        lockdown("task")
        _phase("running the file")
        self.file = TaskFile(init["name"], init["source"])
        _phase("Model(...)")
        self.reference = Reference(self.file)
        self._model = self.reference.model()
        self._first: list[Any] | None = None  # the first workload's inputs without their data
        self._space: sizes.Space | None = None

    # ---------------------------------------------------------------- workloads

    def describe(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The file's own workloads, each run once; {"workloads": [record as a dict, ...]}."""
        own = [Workload(name="given")] if self.file.given else []
        own += [Workload(name=f"group{i}", origin="group", index=i) for i in range(self.file.groups)]
        if not own:
            raise TaskError(f"{self.file.name}: get_input_groups() is empty")
        described = []
        for workload in own:
            inputs = self._draw(workload, 0)
            if workload.name == own[0].name:
                self._first = map_torch(inputs, _without_data)
            specs = tuple(_spec(tensor) for _, tensor in named_leaves("inputs", inputs))
            self._check(inputs)
            described.append(Workload(name=workload.name, origin=workload.origin, index=workload.index, specs=specs))
        return {"workloads": [workload.to_dict() for workload in described]}, None

    def derived(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """Other shapes of the first workload that the reference accepts; {"workloads": [...]}."""
        _phase("deriving other shapes")
        with contextlib.suppress(TaskError):
            found = [w for shapes in self._shape_space().derived() if (w := self._workload(shapes)) is not None]
            return {"workloads": [workload.to_dict() for workload in found]}, None
        return {"workloads": []}, None

    def smaller(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """{"workload": one with at most header["limit"] elements of inputs and outputs, or None}."""
        _phase("deriving other shapes")
        shapes = self._shape_space().shrink(header["limit"])
        workload = None if shapes is None else self._workload(shapes)
        return {"workload": None if workload is None else workload.to_dict()}, None

    def _workload(self, shapes: sizes.Shapes) -> Workload | None:
        """The workload of these shapes if the reference really runs on it and gives mostly finite numbers."""
        workload = Workload(name=sizes.name_of(shapes), origin="derived", shapes=shapes)
        try:
            inputs = self._draw(workload, 0)
            outputs = self._forward(inputs)
        except TaskError:
            return None
        floats = [tensor for _, tensor in named_leaves("output", outputs) if tensor.is_floating_point()]
        if any(tensor.numel() and not tensor.isfinite().double().mean() >= 0.5 for tensor in floats):
            return None
        specs = tuple(_spec(tensor) for _, tensor in named_leaves("inputs", inputs))
        return Workload(name=workload.name, origin="derived", shapes=shapes, specs=specs)

    def _draw(self, workload: Workload, seed: int) -> list[Any]:
        _phase("get_inputs()")
        group = workload.index if workload.origin == "group" or not self.file.given else None
        if workload.shapes is None:
            return self.file.inputs(seed, group)
        if sum(tensor.numel() for _, tensor in named_leaves("inputs", self._given())) >= _COSTLY:
            with contextlib.suppress(TaskError), draw.Resized(_shapes(self._given()), workload.shapes):
                inputs = self.file.inputs(seed, group)
                if _shapes(inputs) == workload.shapes:
                    return inputs
        return draw.resize_all(self.file.inputs(seed, group), self.file.inputs(seed + 1, group), workload.shapes)

    def _given(self) -> list[Any]:
        """The first workload's inputs without data."""
        if self._first is None:
            self._first = map_torch(self._draw(Workload(name="given"), 0), _without_data)
        assert self._first is not None
        return self._first

    def _shape_space(self) -> sizes.Space:
        if self._space is None:
            self._space = sizes.Space(_shapes(self._given()), _Probe(self, self._given()))
        return self._space

    def _check(self, inputs: list[Any]) -> None:
        """Run forward once (on shapes alone where it is costly), and see that its outputs can be compared."""
        try:
            tree_from_torch(map_torch(inputs, lambda t: t.new_empty(0)))
        except TypeError as error:
            raise TaskError(
                f"{self.file.name}: an input is not supported: {error}", hint=f"supported: {SUPPORTED}"
            ) from None
        tensors = [tensor for _, tensor in named_leaves("inputs", inputs)] + list(self._model.parameters())
        outputs = None
        if sum(tensor.numel() for tensor in tensors) >= _META_FROM:
            with contextlib.suppress(TaskError):
                outputs = self.on_meta(inputs)
        if outputs is None:
            outputs = self._forward(inputs)
        leaves = map_torch(_plain(outputs), lambda t: torch.empty(0, dtype=t.dtype))
        try:
            tree_from_torch(leaves)
        except TypeError as error:
            raise TaskError(
                f"{self.file.name}: an output is not supported: {error}", hint=f"supported: {SUPPORTED}"
            ) from None
        if not any(True for _ in named_leaves("output", outputs)) and not isinstance(outputs, (bool, int, float)):
            raise TaskError(
                f"{self.file.name}: forward returns nothing that can be compared", hint=f"return {SUPPORTED}"
            )

    def _forward(self, inputs: list[Any]) -> Any:
        _phase("forward")
        model = self.reference.model()
        with torch.no_grad():
            return self.file.guarded(lambda: model(*inputs), "forward")

    def on_meta(self, inputs: list[Any]) -> Any:
        """forward's outputs as tensors without data. Raises TaskError where the model needs data."""
        return self._meta_call(inputs)()

    def _meta_call(self, inputs: list[Any]) -> Callable[[], Any]:
        _phase("forward")
        model = self.reference.model()
        states.to_meta(model)
        arguments = map_torch(inputs, _without_data)

        def call() -> Any:
            with torch.no_grad(), torch.device("meta"):
                return self.file.guarded(lambda: model(*arguments), "forward")

        return call

    # ---------------------------------------------------------------- data

    def inputs(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The arguments of a workload under a seed."""
        drawn = self._draw(Workload.from_dict(header["workload"]), header["seed"])
        return {}, tree_from_torch(drawn)

    def init_state(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The state table of a model constructed under a seed."""
        _phase("Model(...)")
        return {}, states.build(self.file.model(header["seed"]))

    def run(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The reference on bundle = [inputs, state] in header["dtype"]; bundle back: [outputs, buffers, info]."""
        _phase("forward")
        inputs, state = bundle
        outputs, buffers, info = self.reference.run(inputs, state, header["dtype"])
        return {}, [outputs, buffers, info]

    def capture(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The engine's graph of the model on a workload."""
        _phase("capturing the graph")
        capture = importlib.import_module("hipwright.engine.capture").capture
        inputs = self._draw(Workload.from_dict(header["workload"]), 0)
        return {}, self.file.guarded(lambda: capture(self.reference.model(), inputs), "capturing the graph")

    def trace(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The operators that the reference calls on bundle = [inputs, state]: on shapes alone where that works."""
        _phase("tracing forward")
        op_trace = importlib.import_module("hipwright.program.trace").OpTrace
        inputs = tree_to_torch(bundle[0])
        try:
            call = self._meta_call(inputs)  # moving there is not the model's own work
            with op_trace() as trace:
                call()
        except TaskError:
            model = self.reference.model(bundle[1])
            with torch.no_grad(), op_trace() as trace:
                self.file.guarded(lambda: model(*inputs), "forward")
        return {}, trace.ops


class _Probe:
    """Elements of inputs and outputs at other shapes, by a run on meta tensors; by a real one where meta fails."""

    def __init__(self, host: TaskHost, inputs: list[Any]) -> None:
        self._host = host
        self._inputs = inputs
        try:
            self._meta = True
            self._ranks = self._outputs(_shapes(inputs))[1]
        except TaskError:
            self._meta = False
            self._inputs = host._draw(Workload(name="given"), 0)
            self._ranks = self._outputs(_shapes(inputs))[1]

    def __call__(self, shapes: sizes.Shapes) -> int | None:
        if not self._meta and sizes.elements(shapes) > _PROBE_ELEMENTS:
            return sizes.elements(shapes)
        try:
            count, ranks = self._outputs(shapes)
        except TaskError:
            return None
        return count + sizes.elements(shapes) if ranks == self._ranks else None

    def _outputs(self, shapes: sizes.Shapes) -> tuple[int, list[int]]:
        if self._meta:
            leaves = iter(shapes)
            outputs = self._host.on_meta(map_torch(self._inputs, lambda t: _reshaped(t, next(leaves))))
        else:
            outputs = self._host._forward(draw.resize_all(self._inputs, self._inputs, shapes))
        tensors = [tensor for _, tensor in named_leaves("output", outputs)]
        return sum(tensor.numel() for tensor in tensors), [tensor.dim() for tensor in tensors]


def _reshaped(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor without data that `draw.resize` would give this stride pattern."""
    return torch.empty_strided(shape, draw.strides_like(tensor, shape), dtype=tensor.dtype, device="meta")


def _shapes(inputs: list[Any]) -> sizes.Shapes:
    return tuple(tuple(tensor.shape) for _, tensor in named_leaves("inputs", inputs))


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _plain(value: Any) -> Any:
    """Tuples of any class as plain ones."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(
        dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), stride=tuple(tensor.stride())
    )


def _phase(name: str) -> None:
    """Leave word of what we are at, for the parent to read if we never come back."""
    note = json.dumps({"phase": name}).encode() + b"\0"
    crash_page()[: len(note)] = note
