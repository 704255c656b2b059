"""A forward around several programs, replayed as one graph of the GPU where that is all that it does.

Each drop-in replays a graph of its own, and between them eager PyTorch launches one by one: what a program gains is
lost to the host. `put_graphs` lets the calls of a whole module replay one graph; where it cannot be captured, its parts
that hold drop-ins have one each. `GraphedCalls` captures and copies, as for one program.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook
from torch.utils import _pytree as pytree

from hipwright import config
from hipwright.api.live.device_graphs import DeviceGraphs
from hipwright.api.live.forward.calls import GraphedForward, Signature
from hipwright.api.live.forward.watch import PLAIN
from hipwright.api.live.graphed import CAPTURES, GRAPHS, NEW
from hipwright.api.live.guards import SourceGuards, hooks_of, parts_of, surroundings
from hipwright.api.live.module import FallbackWarning, OptimizedModule, wants_gradients

CHANGES = 8
"""How often a module may change between calls before it is left alone."""
OFF = "HIPWRIGHT_DEVICE_GRAPHS=0"
State = dict[str, torch.Tensor]


class ForwardGraphs:
    """The calls of a module that holds drop-ins, in the place of its own (`torch.nn.Module._compiled_call_impl`).

    A call replays one graph where its kind was captured. All others are the module's own, whose drop-ins replay graphs
    of their own: while a part is in training mode or has hooks, gradients are wanted, a mode of torch is on, or an
    argument is no tensor on the GPU and no plain value; and where the forward does more than its kernels (`watch`).
    The first such call says so by a FallbackWarning, and `counts` has them by reason.
    """

    def __init__(self, module: torch.nn.Module, graphs: DeviceGraphs | None = None) -> None:
        self._module, self._graphs = weakref.ref(module), graphs
        self._default_dtype = torch.get_default_dtype()
        self._launched, self._replays, self._captures = Counter[str](), 0, 0
        self._calls: list[tuple[Signature, GraphedForward]] = []
        self._changes, self._said, self._split = 0, False, False
        self._look(module)

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module's call."""
        module = self._module()
        assert module is not None
        if torch.compiler.is_compiling():
            return module._call_impl(*args, **kwargs)
        leaves, structure = pytree.tree_flatten((args, kwargs))
        why, state = self._checked(module, leaves)
        if why:
            self._launched[why] += 1
            self._tell(module, why)
            return module._call_impl(*args, **kwargs)
        calls = self._calls_of(module, Signature.of(structure, leaves))
        before = calls.replays
        result = calls([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], state)
        if calls.replays != before:
            self._changes = 0
        elif calls.refused:
            self._refuse(module, calls.refused)
        return result.value

    def _checked(self, module: torch.nn.Module, leaves: Sequence[Any]) -> tuple[str, State]:
        """(why a call is the module's own, the live state where it may replay a graph)."""
        why = surroundings(self._default_dtype) or ("hooks of all modules exist" if _has_any_global_hook() else "")
        changed = "" if why else self._guards.changed()
        if changed:
            why = self._changed(module, changed)
        if why := why or self._why:
            return why, {}
        state: State = {}
        for name, table, key in self._held:
            tensor = table.get(key)
            if not _is_strided(tensor):
                return f"{name} is a {type(tensor).__name__}", {}
            state[name] = tensor
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return self._refusal(leaves, tensors, state), state

    def _refusal(self, leaves: Sequence[Any], tensors: Sequence[torch.Tensor], state: State) -> str:
        devices = {one.device for one in (*tensors, *state.values())}
        if len(devices) != 1:
            return f"arguments and parameters are on {len(devices)} devices"
        for leaf in leaves:
            if type(leaf) not in PLAIN and not _is_strided(leaf):
                return f"an argument is a {type(leaf).__name__}"
        return wants_gradients((*tensors, *state.values()))

    def _changed(self, module: torch.nn.Module, changed: str) -> str:
        """What a change of the module means: why it is not captured now; "" where it is looked at anew."""
        if why := _unsuitable(module):  # while that lasts; graphs stay for afterwards
            return why
        self._changes += 1
        if self._changes > CHANGES:
            return f"between calls, {changed}"
        self._look(module)
        return ""

    def _look(self, module: torch.nn.Module) -> None:
        """Takes the module as it is now, and forgets its graphs."""
        for _, calls in self._calls:
            self._replays, self._captures = self._replays + calls.replays, self._captures + calls.captures
            self._launched.update(calls.launched)
        self._calls = []
        self._why = "" if config.device_graphs() else OFF
        self._why = self._why or _unsuitable(module)
        self._guards = SourceGuards(module, every=True)
        self._held = list(_held_by(module))

    def _calls_of(self, module: torch.nn.Module, signature: Signature) -> GraphedForward:
        """The calls with these plain arguments."""
        for place, (known, calls) in enumerate(self._calls):
            if known == signature:
                if place:
                    self._calls.insert(0, self._calls.pop(place))
                return calls
        calls = GraphedForward(module, signature, (self._sets, self._guards.changed), _drop_ins(module), self._graphs)
        self._calls.insert(0, (signature, calls))
        for _, old in self._calls[GRAPHS:]:
            self._replays, self._captures = self._replays + old.replays, self._captures + old.captures
            self._launched.update(old.launched)
        del self._calls[GRAPHS:]
        return calls

    def _sets(self, state: Mapping[str, torch.Tensor]) -> str:
        """The tensor that a call has set whose state was this; "" where it has set none."""
        return next((f"it sets {name}" for name, table, key in self._held if table.get(key) is not state[name]), "")

    def _tell(self, module: torch.nn.Module, why: str) -> None:
        if not self._said and why not in (NEW, CAPTURES, OFF):
            self._said = True
            name = type(module).__name__
            warnings.warn(f"{name} replays no graph of the whole call: {why}", FallbackWarning, stacklevel=5)

    def _refuse(self, module: torch.nn.Module, why: str) -> None:
        """Of a kind that is never captured: the parts that hold drop-ins get graphs of their own."""
        self._tell(module, why)
        if not self._split:
            self._split = True
            for part in _inner(module):
                put_graphs(part, self._graphs)


def put_graphs(module: torch.nn.Module, graphs: DeviceGraphs | None = None) -> ForwardGraphs | None:
    """Lets calls of a module that holds drop-ins of a GPU replay one graph; None where it holds none or is one itself.

    A copy of the module has none.
    """
    here = module.__dict__.get("_compiled_call_impl")
    if isinstance(module, OptimizedModule) or (here is not None and not isinstance(here, ForwardGraphs)):
        return None
    if not any(one.on_gpu for one in _drop_ins(module)):
        return None
    made = ForwardGraphs(module, graphs)
    module._compiled_call_impl = made
    return made


def take_graphs(module: torch.nn.Module) -> None:
    """Gives a module its own calls back, and its parts theirs."""
    for part in module.modules():
        if isinstance(part.__dict__.get("_compiled_call_impl"), ForwardGraphs):
            del part._compiled_call_impl


def forward_counts(module: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """`ForwardGraphs.counts` of the module ("") and of the parts that have graphs of their own, by path."""
    found = ((path, part.__dict__.get("_compiled_call_impl")) for path, part in module.named_modules())
    return {path: graphs.counts for path, graphs in found if isinstance(graphs, ForwardGraphs)}


def _is_strided(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided


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
