"""Models that are set to a state, kept between runs of the reference: setting 60 million parameters takes a second.

A run begins on a copy that shares the parameters and torch's own modules without state, and has buffers and attributes
of its own. A forward that writes to what is shared is noticed afterwards, and the model is made again. Runs in the task
host.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch

from hipwright.task.host import state as states
from hipwright.task.host.copied import SharedModules, copied
from hipwright.task.host.together import cloned, sums_of_bits
from hipwright.tensors import Tree, tensor_leaves

STATE_BYTES = 3 << 29
MODEL_BYTES = 3 << 30
"""What is kept at most of states, and of models that are set to one."""

Token = int | str
"""What names a state."""
Key = tuple[Token, bool]


class KeptStates:
    """State tables by the number that the parent gave them, the latest used up to `STATE_BYTES`."""

    def __init__(self) -> None:
        self._states: OrderedDict[int, Tree] = OrderedDict()

    def known(self, token: int, state: Tree | None) -> Tree | None:
        """The state of a number; None where it is not kept. state: where it is given, it is kept from now on.

        The least recently used make room, and a state itself that is too large.
        """
        state = self._states.pop(token, None) if state is None else state
        if state is not None:
            self._states[token] = state
        while sum(map(_bytes_of_state, self._states.values())) > STATE_BYTES:
            self._states.popitem(last=False)
        return state


class PreparedModels:
    """Models by the name of their state, and whether they are in float64.

    make: a new model, set to a state. most: bytes of parameters that are kept.
    """

    def __init__(self, make: Callable[[Tree], torch.nn.Module], most: int = MODEL_BYTES) -> None:
        self._make, self._most = make, most
        self._models: OrderedDict[Key, _Prepared] = OrderedDict()

    def begin(self, token: Token | None, state: Tree, exact: bool) -> torch.nn.Module:
        """A model for one run; `exact` in float64. token: None for a state that has no name."""
        if token is None:
            return self._made(state, exact)
        key = token, exact
        kept = self._models.get(key) or _Prepared(self._made(state, exact), self._most)
        found = kept.copy() if kept.bytes <= self._most else kept.model
        if found is None:  # not every module can be copied
            return kept.model
        if found is not kept.model:
            self._models[key] = kept
            self._models.move_to_end(key)
        while sum(one.bytes for one in self._models.values()) > self._most:
            self._models.popitem(last=False)
        return found

    def end(self, token: Token | None, exact: bool) -> None:
        """Forgets the model of a run whose parameters are not as they were."""
        if token is not None and (kept := self._models.get((token, exact))) is not None and kept.changed():
            del self._models[token, exact]

    def _made(self, state: Tree, exact: bool) -> torch.nn.Module:
        model = self._make(state)
        if exact:
            states.to_double(model)
        return model


class _Prepared:
    """One model. most: bytes up to which it is kept; bytes: of its parameters."""

    def __init__(self, model: torch.nn.Module, most: int) -> None:
        self.model = model
        self._parameters = list(dict.fromkeys(tensor for _, tensor in states.parameters(model)))
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in self._parameters)
        self._before = self._marks() if self.bytes <= most else ([], [])
        held = set(map(_place, self._parameters))
        self._buffers = [tensor for _, tensor in states.buffers(model)]
        self._tied = any(place in held for place in map(_place, self._buffers) if place)
        self._modules = SharedModules(model)

    def copy(self) -> torch.nn.Module | None:
        """A copy that shares the parameters and modules that a call leaves as they are; None where the module cannot be
        copied, or a buffer is a parameter's memory, which has to stay so."""
        if self._tied:
            return None
        try:
            shared = {id(tensor): tensor for tensor in self._parameters}
            return copied(self.model, {**shared, **self._modules.by_id, **cloned(self._buffers)})
        except Exception:
            return None

    def changed(self) -> bool:
        """Whether a parameter was written to, replaced, or has a gradient, or a shared module another attribute."""
        return self._marks() != self._before or self._modules.changed()

    def _marks(self) -> tuple[list[tuple[int, int, bool]], list[int]]:
        """What shows a change. The bits too: `tensor.data` is written to without another version."""
        seen = [(one.data_ptr(), one._version, one.grad is None) for one in self._parameters]
        devices = dict.fromkeys(one.device for one in self._parameters)
        sums = [sums_of_bits([one for one in self._parameters if one.device == device]) for device in devices]
        return seen, [number for some in sums for number in torch.stack(some).tolist()]  # waits once for each device


def _place(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _bytes_of_state(state: Tree) -> int:
    return sum(leaf.storage.nbytes for leaf in tensor_leaves((state["params"], state["buffers"])))
