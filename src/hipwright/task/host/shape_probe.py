"""What the reference accepts at other shapes, for `task/sizes.py`. Runs in the task host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from hipwright.errors import TaskError
from hipwright.records import Workload
from hipwright.task import sizes
from hipwright.task.host import draw
from hipwright.task.host.leaves import elements_of, ranks_of, reshaped
from hipwright.task.host.made_elements import HUGE, MadeElements
from hipwright.task.host.meta_model import HOW, MetaModel
from hipwright.task.host.reference import named_leaves
from hipwright.torchio import map_torch

_PROBE_ELEMENTS = 1 << 20  # elements up to which a probe may run on values


class ShapeProbe:
    """Elements of inputs and outputs at other shapes: by a run on shapes alone, or on values where that fails.

    Where the given shapes make a huge tensor on the way, the result is at least a HUGE-th of the largest one.

    inputs: the given ones without data. drawn: arguments of a workload. forward: runs the reference on values;
    affordable: whether it may.
    """

    def __init__(
        self,
        meta_model: MetaModel,
        inputs: list[Any],
        drawn: Callable[[Workload, int], list[Any]],
        forward: Callable[[list[Any]], Any],
        *,
        affordable: bool,
    ) -> None:
        self._meta_model, self._inputs, self._drawn, self._forward = meta_model, inputs, drawn, forward
        self._ranks: list[int] | None = None
        self._how: str = ""
        self._huge = False
        for how in HOW:
            with contextlib.suppress(TaskError):
                outputs = meta_model.outputs(inputs, how, made := MadeElements())
                self._ranks, self._how = ranks_of(outputs), how
                self._huge = made.is_huge(elements_of(inputs) + elements_of(outputs))
                return
        if affordable:
            self._inputs = drawn(Workload(name="given"), 0)
            self._ranks = ranks_of(forward(self._inputs))

    def __call__(self, shapes: sizes.Shapes) -> int | None:
        """Elements of inputs and outputs; None where the reference refuses the shapes."""
        if not self._how and sizes.elements(shapes) > _PROBE_ELEMENTS:
            return sizes.elements(shapes)
        made = MadeElements() if self._huge else None
        try:
            outputs = self._outputs(shapes, made)
        except TaskError:
            return None
        ranks = self._ranks = self._ranks or ranks_of(outputs)
        if ranks_of(outputs) != ranks:
            return None
        return max(elements_of(outputs) + sizes.elements(shapes), made.largest // HUGE if made else 0)

    def _outputs(self, shapes: sizes.Shapes, made: MadeElements | None) -> Any:
        if self._how:
            leaves = iter(shapes)
            inputs = map_torch(self._inputs, lambda t: reshaped(t, next(leaves)))
            return self._meta_model.outputs(inputs, "fake" if self._how == "fake" else "meta", made)
        if any(tensor.is_meta for _, tensor in named_leaves("inputs", self._inputs)):
            inputs = self._drawn(Workload(name="", origin="derived", shapes=shapes), 0)
        else:
            inputs = draw.resize_all(self._inputs, self._inputs, shapes)
        return self._forward(inputs)
