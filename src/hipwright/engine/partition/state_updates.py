"""The values that a graph leaves in module buffers and in inputs: where each is computed into its place."""

from __future__ import annotations

from collections.abc import Iterator

from hipwright.capture.graph import Mutation
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.values import LoweredItem, Tensor
from hipwright.engine.partition.state import LoweringState


class StateUpdates:
    """Gives every mutation of a lowered graph an item whose target is the tensor that takes the value."""

    def __init__(self, state: LoweringState) -> None:
        self._state, self.c = state, state.c

    def add(self) -> None:
        """Adds the items. Raises ValueError where a buffer is written that nothing declares."""
        for mutation in self._state.graph.mutations:
            if mutation.node in self._state.out.written:
                continue  # written where it was computed
            value = self._state.values[mutation.node]
            target = self._target(mutation)
            self._state.out.written[mutation.node] = target
            if not self._takes(value, target):
                self._item(mutation, value, target)

    def _target(self, mutation: Mutation) -> str:
        graph, tensors = self._state.graph, self._state.out.tensors
        name = next((i.name for i in graph.inputs if i.access == mutation.access), "")
        if name not in tensors:
            raise ValueError(f"{mutation.access} is written but never read")
        return name

    def _takes(self, value: Tensor, target: str) -> bool:
        """Whether the item that stores the value for its readers writes the target in place of memory of its own."""
        item = next((i for i in self.c.items if i.name == value.buffer), None)
        meta = self._state.out.tensors[target].meta
        if item is None or item.kind != "pw" or item.target or item.alone or item.dtype != meta.dtype:
            return False
        if [s.key for s in item.shape] != [s.key for s in self.c.shape(meta)] or self._elsewhere(item, target):
            return False
        if any(target in reads for other, reads in self._reads() if other is not item):
            return False  # who reads the old value may read the new one too
        item.target = target
        return True

    def _item(self, mutation: Mutation, value: Tensor, target: str) -> None:
        """A pointwise item that stores the value; where threads would read what others overwrite, memory between."""
        dtype = self._state.out.tensors[target].meta.dtype
        name = self.c.unique(f"new_{target.removeprefix('b_')}")
        item = LoweredItem(
            name, "pw", dtype, value.shape, self.c.cast(value, dtype).at, node=mutation.node, target=target
        )
        if self._elsewhere(item, target):
            item.body = self.c.cast(self.c.realise(value, between=False), dtype).at
        self.c.items.append(item)

    def _elsewhere(self, item: LoweredItem, target: str) -> bool:
        """Whether an item reads of the target other elements than the one that it writes."""
        index = self.c.probe(item.space)
        own = flatten(item.space, index).key
        return any(e.attr[1].key != own for e in walk([item.body(index)]) if e.op == "load" and e.attr[0] == target)

    def _reads(self) -> Iterator[tuple[object, set[str]]]:
        """(reader, the tensors in memory that it reads) for every item, library call and view."""
        for item in self.c.items:
            if item.kind == "call":
                yield item, set(item.placed.reads)
            else:
                yield item, _loads([item.body(self.c.probe(item.space))])
        for call in self._state.out.calls:
            yield call, set(call.refs.values())
        for view in self._state.out.views:
            yield view, {view.source}


def _loads(values: list[E]) -> set[str]:
    return {e.attr[0] for e in walk(values) if e.op == "load"}
