"""One call of a forward, watched operator by operator: whether a graph of its kernels does all that the call does.

A graph repeats kernels at their addresses. What a forward does beside them is lost: values of arguments or state that
the processor reads and decides by, random numbers, writes into arguments or state, results that share memory, tensors
of which nobody knows when they are replaced. Such a forward is never captured. Programs launch their kernels past
torch: they were verified.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from hipwright.api.live.forward.argument_reads import NUMBERS, ArgumentReads, Recorded, argument_reads, decides
from hipwright.api.live.forward.modes import looking
from hipwright.api.live.forward.reads import DETACH, Read, is_read
from hipwright.api.live.forward.results import PLAIN
from hipwright.higher_order import OperatorMode
from hipwright.torchio import tensors_of

T = TypeVar("T")


def watched(
    call: Callable[[], T],
    device: torch.device,
    inputs: Sequence[torch.Tensor],
    state: Iterable[torch.Tensor],
    leaves: Callable[[T], Sequence[Any]],
) -> tuple[T, SeenCall]:
    """The call's result, and what was seen. Raises what call() raises.

    leaves: of a result of the call, which are to be copied out of a graph.
    """
    watch = CallWatch(device, inputs, state)
    before = _random_states(device)
    with looking(watch), watch:
        result = call()
    drawn = "" if _random_states(device) == before else "it draws random numbers"
    if why := drawn or watch.why or watch.refused(leaves(result)):
        return result, SeenCall(why)
    return result, SeenCall("", tuple(watch.reads), argument_reads(watch.recorded, inputs) if watch.reads else None)


class SeenCall(NamedTuple):
    """Of a call. why: its kernels alone are not the call, "" where they are; reads: what the processor read in it;
    argument_reads: whether a call with other arguments reads the same, None where all do."""

    why: str
    reads: tuple[Read, ...] = ()
    argument_reads: ArgumentReads | None = None


class CallWatch(OperatorMode):
    """Looks at each operator. why: the first thing that a graph would not do; "" where there is none. reads: numbers
    that the processor read from the call's own tensors and `decides` arguments; recorded: operators of these alone."""

    def __init__(self, device: torch.device, inputs: Sequence[torch.Tensor], state: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.why, self.reads, self._place = "", list[Read](), 0
        self.recorded: list[Recorded] = []
        self._device = device
        self._refs: list[StorageWeakRef] = []  # an address is not given again while there is one
        self._given, self._state, self._made = set[int](), set[int](), set[int]()
        for known, tensors in ((self._given, inputs), (self._state, state)):
            known.update(map(self._storage, tensors))
        self._asked = set(map(self._storage, filter(decides, inputs))) - self._state
        self._fed = (self._given | self._state) - self._asked  # what state or other arguments make

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            result = func.decompose(*args, **kwargs)  # under inference mode, operators come whole
        if result is not NotImplemented:
            return result
        self._place += func is not DETACH
        leaves = pytree.tree_leaves((args, kwargs))
        found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        recorded = args, kwargs
        if func is torch.ops.aten.lift_fresh.default:
            self._made.update(map(self._storage, found))
            recorded = (found[0].clone(),), {}  # the call may write into it
        written = list(_written(func, args, kwargs))
        result = func(*args, **kwargs)
        results = list(tensors_of(result))
        storages = set(map(self._storage, found))
        own = storages <= self._made | self._asked and storages.isdisjoint(self._fed)
        if own:
            self.recorded.append(Recorded(func, recorded, result, written))
        if own and isinstance(result, NUMBERS) and is_read(func, found):
            self.reads.append(Read(self._place, func, result))
        else:
            self.why = self.why or self._reason(func, leaves, found, written, results)
        self._own(results)
        if not own:
            self._fed.update(map(self._storage, (*results, *written)))
        return result

    @contextmanager
    def resting(self) -> Iterator[None]:
        """As `CallMode.resting`."""
        with _disable_current_modes():
            yield

    def made(self, results: Any) -> None:
        """Takes tensors that a program makes of arguments and state as the call's own."""
        tensors = list(tensors_of(results))
        self._own(tensors)
        self._fed.update(map(self._storage, tensors))

    def _own(self, tensors: Sequence[torch.Tensor]) -> None:
        """Takes tensors as the call's own, but for those in the memory of its arguments and state."""
        self._made.update(set(map(self._storage, tensors)) - self._given - self._state)

    def _reason(
        self,
        func: Any,
        leaves: Sequence[Any],
        found: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> str:
        name = func.name().removeprefix("aten::")
        if any(isinstance(leaf, torch.Generator) for leaf in leaves):
            return "it draws random numbers"
        if is_read(func, found):
            return f"the processor reads values ({name})"
        storages = list(map(self._storage, found))
        if any(one not in self._made | self._given | self._state for one in storages):
            return f"it reads a tensor that is no argument, parameter or buffer ({name})"
        if func is torch.ops.aten.lift_fresh.default and self._device.type != "cpu" and found[0].device == self._device:
            return "it copies values of the processor"
        if any(self._storage(one) in self._given for one in written):
            return f"it writes into an argument ({name})"
        if any(self._storage(one) in self._state for one in written):
            return f"it writes into a parameter or buffer ({name})"
        if self._crosses(found, results):
            return f"it uses tensors of several devices ({name})"
        return ""

    def _crosses(self, found: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> bool:
        """Whether values come from another device or go there, but for numbers that the call itself made.

        An attention gives the state of its random numbers, two numbers of the processor, beside its own results.
        """
        here = [one.device == self._device for one in (*found, *results)]
        if all(here) or not any(here):
            return False
        others = [one for one in found if one.device != self._device]
        given = [one for one in results if one.device != self._device]
        numbers = all(one.ndim == 0 and self._storage(one) in self._made for one in others)
        beside = all(one.ndim == 0 for one in given) and len(given) < len(results)
        return not (numbers and len(others) < len(found) and (not given or beside))

    def refused(self, leaves: Sequence[Any]) -> str:
        """Why a result cannot be copied out of a graph; "" where it can."""
        tensors: dict[int, torch.Tensor] = {}
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                tensors[id(leaf)] = leaf
            elif type(leaf) not in PLAIN:
                return f"its result holds a {type(leaf).__name__}"
        storages = set[int]()
        for one in tensors.values():
            if type(one) is not torch.Tensor or one.layout != torch.strided or one.device != self._device:
                return f"its result is a {type(one).__name__}, {one.layout} on {one.device}"
            storage = self._storage(one)
            if storage in storages or storage not in self._made:
                return "its result shares memory with an argument, the state or another result"
            storages.add(storage)
        return ""

    def _storage(self, tensor: torch.Tensor) -> int:
        try:
            ref = StorageWeakRef(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError):  # sparse tensors and the like have none
            return -1
        self._refs.append(ref)
        return int(ref.cdata)


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors into which an operator writes."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _random_states(device: torch.device) -> list[Any]:
    """The states of the generators that a forward may draw from unasked."""
    states = [torch.default_generator.get_state().numpy().tobytes(), random.getstate()]
    if device.type == "cuda":
        states.append(torch.cuda.default_generators[device.index].get_state().numpy().tobytes())
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *rest = numpy.random.get_state()
        states.append((name, keys.tobytes(), *rest))
    return states
