"""A task's model and inputs without data, for shapes, operators and costs in milliseconds. Runs in the task host.

A file's globals (a cached mask) would mix tensors with and without data, so the file is executed a second time for this
model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from hipwright.higher_order import both_sides
from hipwright.program.lower.live_bytes import LiveBytes
from hipwright.program.lower.trace import OpTrace
from hipwright.task.host import state as states
from hipwright.task.host.copied import SharedModules, copied
from hipwright.task.host.leaves import elements_of
from hipwright.task.host.load import MODULE, TaskModule
from hipwright.task.host.made_elements import MadeElements
from hipwright.task.host.modes.meta_shapes import MetaShapes
from hipwright.task.host.writes import and_written, with_written
from hipwright.torchio import map_torch

Call = Callable[[Any, Sequence[Any], set[str]], Any]
How = Literal["meta", "fake"]
HOW: tuple[How, ...] = ("meta", "fake")  # in this order: "meta" is cheaper, "fake" supports devices and more operators


class MetaModel:
    """The model of a task file on tensors without data. Raises TaskError where the file's code needs data."""

    def __init__(self, name: str, source: str) -> None:
        ours = sys.modules.get(MODULE)
        try:
            self.file = TaskModule(name, source)
        finally:
            if ours is not None:
                sys.modules[MODULE] = ours
        self._on_meta: torch.nn.Module | None = None
        self._shared: SharedModules | None = None
        self.wrote: set[str] = set()  # inputs that forward writes to, by path

    def inputs(self, seed: int, group: int | None) -> list[Any]:
        """get_inputs() or a group on meta tensors; nothing is drawn."""
        with _fake_mode():
            inputs: list[Any] = map_torch(self.file.inputs(seed, group), without_data)
            return inputs

    def outputs(self, inputs: Sequence[Any], how: How = "meta", made: MadeElements | None = None) -> Any:
        """forward's outputs without data, as `with_written` returns them. made: counts what is made on the way."""
        return self._call(inputs, how, *filter(None, (made,)))

    def operators(self, inputs: Sequence[Any], how: How) -> tuple[list[dict[str, Any]], Any, int]:
        """(operators as OpTrace records them, `and_written`'s result, `LiveBytes.most`)."""
        trace, living = OpTrace(), LiveBytes()
        outputs = self._call(inputs, how, living, trace, call=and_written)
        return trace.ops, outputs, living.most

    def operations(self, inputs: Sequence[Any]) -> tuple[float, Any]:
        """(arithmetic operations of the products and convolutions in forward, outputs).

        Where a tensor on the way is huge, what making all of them costs is added.
        """
        counter, made = _operation_counter(), MadeElements()
        outputs = self._call(inputs, "meta", counter, made)
        return float(counter.get_total_flops()) + made.operations(elements_of(inputs) + elements_of(outputs)), outputs

    def _call(
        self, inputs: Sequence[Any], how: How, *watches: AbstractContextManager[Any], call: Call = with_written
    ) -> Any:
        if self._shared is not None and self._shared.changed():
            self._on_meta = None
        model = self._model(how)
        run = partial(self._guarded, call, model)
        if how == "meta":
            with torch.no_grad(), torch.device("meta"), both_sides(), MetaShapes():
                return _watched(run, map_torch(list(inputs), without_data), watches)
        with torch.no_grad(), both_sides(), _fake_mode():
            arguments = map_torch(list(inputs), lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype))
            return _watched(run, arguments, watches)

    def _guarded(self, call: Call, model: torch.nn.Module, args: list[Any]) -> Any:
        return self.file.guarded(lambda: call(model, args, self.wrote), "forward")

    def _model(self, how: How) -> torch.nn.Module:
        """A new model. Moving it does not count as work of the model."""
        if how == "fake":
            return self.file.model(0)
        if self._on_meta is None:
            self._on_meta = self.file.model(0)
            states.to_meta(self._on_meta)
            self._shared = SharedModules(self._on_meta)
        assert self._shared is not None
        try:  # tensors without data stay as they are
            tensors = (*states.parameters(self._on_meta), *states.buffers(self._on_meta))
            return copied(self._on_meta, {**{id(tensor): tensor for _, tensor in tensors}, **self._shared.by_id})
        except Exception:  # not every module can be copied
            model = self.file.model(0)
            states.to_meta(model)
            return model


def _watched(run: Callable[[Any], Any], arguments: Any, watches: Sequence[AbstractContextManager[Any]]) -> Any:
    with ExitStack() as entered:
        for watch in watches:
            entered.enter_context(watch)
        return run(arguments)


def _operation_counter() -> FlopCounterMode:
    """Counts a whole call. torch's own counts by module too, by hooks that refuse `autograd.grad` by parameters."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _OneScope()
    return counter


class _OneScope(nullcontext[None]):
    """In place of torch's ModuleTracker: everything runs in the scope that counts all."""

    parents = frozenset({"Global"})


def without_data(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape, strides and dtype on the meta device."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _fake_mode() -> Any:
    return FakeTensorMode(allow_non_fake_inputs=True)
