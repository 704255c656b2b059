"""A forward around several programs, replayed as one graph of the GPU where that is all that it does.

Each drop-in replays a graph of its own, and between them eager PyTorch launches one by one: what a program gains is
lost to the host. `put_graphs` lets the calls of a whole module replay one graph; where it cannot be captured, its parts
that hold drop-ins have one each. `GraphedCalls` captures and copies, as for one program.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook
from torch.utils import _pytree as pytree

from hipwright import config
from hipwright.api.live.device_graphs import DeviceGraphs
from hipwright.api.live.forward.calls import GraphedForward, Signature
from hipwright.api.live.forward.results import PLAIN
from hipwright.api.live.graphed import CAPTURES, GRAPHS, NEW
from hipwright.api.live.guards import SourceGuards, hooks_of, parts_of, surroundings
from hipwright.api.live.module import FallbackWarning, OptimizedModule, wants_gradients

CHANGES = 8
"""How often a module may change between calls before it is left alone."""
STRIDED = {torch.Tensor, torch.nn.Parameter}
OFF = "HIPWRIGHT_DEVICE_GRAPHS=0"
State = dict[str, torch.Tensor]


class ForwardGraphs:
    """The calls of a module that holds drop-ins, in the place of its own (`torch.nn.Module._compiled_call_impl`).

    A call replays one graph where its kind was captured. All others are the module's own, whose drop-ins replay graphs
    of their own: while a part is in training mode or has hooks, gradients are wanted, a mode of torch is on, or an
    argument is no tensor on the GPU and no plain value; and where the forward does more than its kernels (`watch`).
    The first such call says so by a FallbackWarning, and `counts` has them by reason. A call of a replica (by
    torch.nn.DataParallel), whose drop-ins are the originals, is the replica's own.
    """

    def __init__(self, module: torch.nn.Module, device: str, graphs: DeviceGraphs | None = None) -> None:
        self._module, self._device, self._graphs = module, device, graphs
        self._default_dtype = torch.get_default_dtype()
        self._launched, self._replays, self._captures = Counter[str](), 0, 0
        self._lock = threading.RLock()
        self._calls: list[tuple[Signature, GraphedForward]] = []
        self._changes, self._said, self._split = 0, False, False
        self._look()
        self._before = self.counts

    @property
    def counts(self) -> dict[str, Any]:
        """{"replays", "captures", "launched": calls that replayed no graph of all of it, by reason}."""
        launched = self._launched.copy()
        for _, calls in self._calls:
            launched.update(calls.launched)
        made = [calls for _, calls in self._calls]
        return {
            "replays": self._replays + sum(one.replays for one in made),
            "captures": self._captures + sum(one.captures for one in made),
            "launched": dict(launched),
        }

    def taken(self) -> dict[str, Any]:
        """`counts` since this was asked last."""
        found = self.counts
        before, self._before = self._before, found
        launched = Counter(found["launched"]) - Counter(before["launched"])
        return {"replays": found["replays"] - before["replays"], "launched": dict(launched)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module's call."""
        if torch.compiler.is_compiling():
            return self._module._call_impl(*args, **kwargs)
        if (replica := _called_replica()) is not None:
            return replica._call_impl(*args, **kwargs)
        leaves, structure = pytree.tree_flatten((args, kwargs))
        why, state = self._checked(leaves)
        if why:
            self._launched[why] += 1
            self._tell(why)
            return self._module._call_impl(*args, **kwargs)
        calls = self._calls_of(Signature.of(structure, leaves))
        before = calls.replays
        result = calls([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], state)
        if calls.replays != before:
            self._changes = 0
        elif calls.refused:
            self._refuse(calls.refused)
        return result.value

    def _checked(self, leaves: Sequence[Any]) -> tuple[str, State]:
        """(why a call is the module's own, the live state where it may replay a graph)."""
        if self._why == OFF:
            return OFF, {}
        why = surroundings(self._default_dtype) or ("hooks of all modules exist" if _has_any_global_hook() else "")
        why = why or self._changed() or self._why
        if why:
            return why, {}
        state: State = {name: table.get(key) for name, table, key in self._held}
        given = [leaf for leaf in leaves if type(leaf) not in PLAIN]
        held = [*state.values(), *given]
        if not (STRIDED.issuperset(map(type, held)) and all(one.layout is torch.strided for one in held)):
            return _odd(state, given), {}
        devices = {one.device for one in held}
        if len(devices) != 1 or next(iter(devices)).type != self._device:
            where = " and ".join(sorted(map(str, devices))) or "no device"
            return f"arguments and parameters are on {where}, and the programs run on {self._device}", {}
        return wants_gradients(held), state

    def _changed(self) -> str:
        """Why the module is not captured as it is now; "" where it may be. One that has changed is looked at anew."""
        changed = self._guards.changed()
        if not changed:
            return ""
        if why := _unsuitable(self._module):  # while that lasts; graphs stay for afterwards
            return why
        with self._lock:
            self._changes += 1
            if self._changes > CHANGES:
                return f"between calls, {changed}"
            self._look()
        return ""

    def _look(self) -> None:
        """Takes the module as it is now, and forgets its graphs."""
        self._forget(0)
        self._why = (OFF if not config.device_graphs() else "") or _unsuitable(self._module)
        self._guards = SourceGuards(self._module, every=True)
        self._held = _held_by(self._module)

    def _forget(self, most: int) -> None:
        """The calls with other plain arguments than the last ones, but for so many."""
        for _, old in self._calls[most:]:
            self._replays, self._captures = self._replays + old.replays, self._captures + old.captures
            self._launched.update(old.launched)
        del self._calls[most:]

    def _calls_of(self, signature: Signature) -> GraphedForward:
        """The calls with these plain arguments."""
        with self._lock:
            found = next((place for place, (known, _) in enumerate(self._calls) if known == signature), None)
            if found is None:
                sets = self._sets, self._guards.changed
                calls = GraphedForward(self._module, signature, sets, _drop_ins(self._module), self._graphs)
                self._calls.insert(0, (signature, calls))
                self._forget(GRAPHS)
            elif found:
                self._calls.insert(0, self._calls.pop(found))
            return self._calls[0][1]

    def _sets(self, state: Mapping[str, torch.Tensor]) -> str:
        """The tensor that a call has set whose state was this; "" where it has set none."""
        return next((f"it sets {name}" for name, table, key in self._held if table.get(key) is not state.get(name)), "")

    def _tell(self, why: str, level: int = 4) -> None:
        if not self._said and why not in (NEW, CAPTURES, OFF):
            self._said = True
            name = type(self._module).__name__
            warnings.warn(f"{name} replays no graph of the whole call: {why}", FallbackWarning, stacklevel=level)

    def _refuse(self, why: str) -> None:
        """Of a kind that is never captured: the parts that hold drop-ins get graphs of their own."""
        self._tell(why, 5)
        if not self._split:
            self._split = True
            for part in _inner(self._module):
                put_graphs(part, self._graphs)


def _called_replica() -> torch.nn.Module | None:
    """The copy by torch.nn.DataParallel that is called: it has the module's attributes, so its graphs too."""
    caller = sys._getframe(2).f_locals.get("self")  # of torch.nn.Module._wrapped_call_impl
    return caller if isinstance(caller, torch.nn.Module) and caller.__dict__.get("_is_replica") else None


def put_graphs(
    module: torch.nn.Module, graphs: DeviceGraphs | None = None, *, device: str = ""
) -> ForwardGraphs | None:
    """Lets calls of a module with drop-ins of a GPU replay one graph. device: of programs that it may get later.

    None where it holds none, is a drop-in itself, or is compiled. A copy of the module has no graphs.
    """
    here = module.__dict__.get("_compiled_call_impl")
    if isinstance(module, OptimizedModule) or (here is not None and not isinstance(here, ForwardGraphs)):
        return None
    device = device or next(filter(None, (one.launches_on for one in _drop_ins(module))), "")
    if not device:
        return None
    made = ForwardGraphs(module, device, graphs)
    module._compiled_call_impl = made
    return made


def take_graphs(module: torch.nn.Module) -> None:
    """Gives a module its own calls back, and its parts theirs."""
    for part in module.modules():
        if isinstance(part.__dict__.get("_compiled_call_impl"), ForwardGraphs):
            del part._compiled_call_impl


def forward_counts(module: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """`ForwardGraphs.counts` of the module ("") and of the parts that have graphs of their own, by path."""
    return {path: graphs.counts for path, graphs in graphs_in(module).items()}


def graphs_in(module: torch.nn.Module) -> dict[str, ForwardGraphs]:
    """Those of the module ("") and of its parts, by path."""
    found = ((path, part.__dict__.get("_compiled_call_impl")) for path, part in module.named_modules())
    return {path: graphs for path, graphs in found if isinstance(graphs, ForwardGraphs)}


def _odd(state: State, given: Sequence[Any]) -> str:
    """What is no plain tensor."""
    for name, one in (*state.items(), *(("an argument", one) for one in given)):
        if type(one) not in STRIDED or one.layout is not torch.strided:
            return f"{name} is a {type(one).__name__}"
    return ""


def _drop_ins(module: torch.nn.Module) -> list[OptimizedModule]:
    return [one for one in module.modules() if isinstance(one, OptimizedModule)]


def _inner(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The largest parts that are called; lists and tables of modules are not."""
    found: list[torch.nn.Module] = []
    for part in module.children():
        lists = isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict))
        found += _inner(part) if lists else [part]
    return found


def _unsuitable(module: torch.nn.Module) -> str:
    """Why no call of a module is captured while it is as it is; "" where one may be."""
    for path, part in (*module.named_modules(), *parts_of(module)):
        if part.training:
            return f"{path or 'the module'} is in training mode"
        if any(hooks_of(vars(part))):
            return f"{path or 'the module'} has hooks"
    return "it draws random numbers" if any(one.draws for one in _drop_ins(module)) else ""


def _held_by(module: torch.nn.Module) -> list[tuple[str, Mapping[str, Any], str]]:
    """(its name, the table, its key) of each tensor that a call may read beside its arguments."""
    found: dict[tuple[int, str], tuple[str, Mapping[str, Any], str]] = {}
    for path, part in parts_of(module):
        for table in (part._parameters, part._buffers, vars(part)):
            for key, value in table.items():
                if isinstance(value, torch.Tensor):
                    found.setdefault((id(table), key), (f"{path}.{key}".removeprefix("."), table, key))
    for number, one in enumerate(_drop_ins(module)):
        for name, (table, key) in one.state_tables.items():
            found.setdefault((id(table), key), (f"{name} of program {number}", table, key))
    return list(found.values())
