"""What a traced graph took for granted about a live callable: compared before each call of its program.

A trace sees values: modes, numbers and names that the callable's code reads are fixed in its graph. What they were is
kept, and a call at which one differs is the original's. Not seen: attributes of objects that are no modules, values
inside modules of packages, and what functions of packages read.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import torch

from hipwright.api.live.exported import InputName, LiveTask
from hipwright.api.live.forward.modes import watching
from hipwright.api.live.forward.results import PLAIN

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_KEPT = frozenset({*vars(torch.nn.Module()), "_compiled_call_impl"} - {"training"})

Check = tuple[str, Callable[[], Any], Any, bool]
"""(what it is of, reads it, what it was, whether it must be the same object)."""


hooks_of = itemgetter(*_HOOKS)
"""The tables of a module's hooks, of its own table."""


class DropIn(torch.nn.Module):  # type: ignore[misc]
    """A module that stands for `original`: what a forward takes for granted is the original's."""

    original: Any


class SourceGuards:
    """The modes, plain attributes and parts of a module, and the globals and closures of the caller's own code.

    every: attributes that are other objects too, and how many there are.
    """

    def __init__(self, fn: Any, *, every: bool = False) -> None:
        self._checks: list[Check] = list(_checks_of(fn, every))

    def changed(self) -> str:
        """What differs from the time of the trace; "" where nothing does."""
        for name, read, known, identical in self._checks:
            found = read()
            if found is known or (not identical and type(found) is type(known) and _equal(found, known)):
                continue
            return f"{name} has changed"
        return ""


def _equal(found: Any, known: Any) -> bool:
    try:
        return bool(found == known)
    except Exception:  # tensors inside lists, and the like: taken as changed
        return False


def _checks_of(fn: Any, every: bool) -> Iterator[Check]:
    seen: set[int] = set()
    if not isinstance(fn, torch.nn.Module):
        yield from _of_function(fn, seen)
        return
    for path, module in fn.named_modules():
        if isinstance(module, DropIn):
            yield f"{path}'s hooks", _hooks(vars(module)), _hooks(vars(module))(), False
    for path, module in parts_of(fn):
        yield from _of_module(path or "the module", module, every)
        for cls in type(module).__mro__:
            if not cls.__module__.startswith("torch."):
                for member in vars(cls).values():
                    yield from _of_function(member, seen)


def parts_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules whose code a call of this one runs, with their paths: of a drop-in the original."""
    for path, one in module.named_modules():
        own = one.original if isinstance(one, DropIn) else one
        if isinstance(own, torch.nn.Module):
            yield path, own


def _of_module(path: str, module: torch.nn.Module, every: bool) -> Iterator[Check]:
    values = vars(module)
    for name, value in values.items():
        if name in _KEPT or not (plain := _is_plain(value)):
            if name not in _KEPT and every and not isinstance(value, torch.Tensor):
                yield f"{path}.{name}", _reader(values, name), value, True
                if isinstance(value, (list, tuple, dict, set)):
                    yield f"what {path}.{name} holds", _items(value), _items(value)(), False
            continue
        known = copy.deepcopy(value) if plain and isinstance(value, (list, dict, set)) else value
        yield f"{path}.{name}", _reader(values, name), known, False
    if every:
        yield f"the number of {path}'s attributes", _count(values), _count(values)(), False
    yield f"the number of {path}'s parameters and buffers", _held(module), _held(module)(), False
    yield f"{path}'s hooks", _hooks(values), _hooks(values)(), False
    yield f"{path}'s parts", _parts(module._modules), tuple(map(id, module._modules.values())), False
    yield f"{path}'s class", _class(module), type(module), True


def _of_function(member: Any, seen: set[int]) -> Iterator[Check]:
    """The globals and closure of a function of the caller's, and of those that it calls."""
    fn = member.__func__ if isinstance(member, (classmethod, staticmethod, types.MethodType)) else member
    fn = fn.fget if isinstance(fn, property) else fn
    if not isinstance(fn, types.FunctionType) or id(fn) in seen or _of_package(fn):
        return
    seen.add(id(fn))
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield from _of_name(name, _cell(cell), value, seen)
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield from _of_name(name, _reader(fn.__globals__, name), fn.__globals__[name], seen)
    yield f"{fn.__name__}'s defaults", _defaults(fn), (fn.__defaults__, fn.__kwdefaults__), False


def _of_name(name: str, read: Callable[[], Any], value: Any, seen: set[int]) -> Iterator[Check]:
    if isinstance(value, types.ModuleType):
        return
    plain = _is_plain(value)
    known = copy.deepcopy(value) if plain and isinstance(value, (list, dict, set)) else value
    yield name, read, known, not plain
    if isinstance(value, types.FunctionType):
        yield from _of_function(value, seen)
    elif isinstance(value, torch.nn.Module):
        for path, module in parts_of(value):
            yield from _of_module(f"{name}.{path}" if path else name, module, every=False)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return isinstance(value, PLAIN)


def _of_package(fn: types.FunctionType) -> bool:
    """Whether a function is of an installed package, whose own globals are taken as fixed."""
    return any(part in fn.__code__.co_filename for part in ("site-packages", "dist-packages", "<frozen"))


def _reader(values: Mapping[str, Any], name: str) -> Callable[[], Any]:
    return lambda: values.get(name)


def _hooks(values: Mapping[str, Any]) -> Callable[[], int]:
    return lambda: sum(map(len, hooks_of(values)))


def _parts(values: Mapping[str, Any]) -> Callable[[], tuple[int, ...]]:
    return lambda: tuple(map(id, values.values()))


def _held(module: torch.nn.Module) -> Callable[[], int]:
    """Reads how many parameters and buffers are tensors."""
    own, buffers = module._parameters, module._buffers
    if any(one is None for table in (own, buffers) for one in table.values()):
        return lambda: sum([one is not None for table in (own, buffers) for one in table.values()])
    return lambda: len(own) + len(buffers)


def _items(value: Any) -> Callable[[], list[int]]:
    """Reads which objects a container holds."""
    return lambda: [*map(id, value.values() if isinstance(value, dict) else value)]


def _count(values: Mapping[str, Any]) -> Callable[[], int]:
    return lambda: len(values) - ("_compiled_call_impl" in values)


def _class(module: torch.nn.Module) -> Callable[[], type]:
    return lambda: type(module)


def _cell(cell: Any) -> Callable[[], Any]:
    return lambda: cell.cell_contents


def _defaults(fn: types.FunctionType) -> Callable[[], Any]:
    return lambda: (fn.__defaults__, fn.__kwdefaults__)


def surroundings(default_dtype: torch.dtype) -> str:
    """Modes of torch under which a call does something else than its operators say; "" where there are none."""
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        return "autocast is on"
    if torch._C._functorch.maybe_current_level() is not None:
        return "a transform of torch.func is on"
    if torch._C._len_torch_dispatch_stack() > watching() or torch._C._len_torch_function_stack():
        return "a mode of torch is on"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit traces the call"
    return "" if torch.get_default_dtype() == default_dtype else "the default dtype has changed"


def refusal(live: LiveTask, structure: Any, leaves: list[Any], device: str) -> str:
    """Why the arguments of a call are not the program's, before shapes are looked at; "" where they are."""
    if structure != live.arguments:
        return "the arguments have another structure"
    for leaf, known in zip(leaves, live.leaves, strict=True):
        if not isinstance(known, InputName):
            if type(leaf) is not type(known) or not (leaf is known or _equal(leaf, known)):
                return f"an argument is {leaf!r:.60}, and the program is for {known!r:.60}"
        elif why := _tensor_refusal(leaf, known.name, live, device):
            return why
    return ""


def _tensor_refusal(leaf: Any, name: str, live: LiveTask, device: str) -> str:
    dtype, rank = live.types[name]
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        return f"{name} is a {type(leaf).__name__}"
    if leaf.dtype != dtype or leaf.ndim != rank:
        return f"{name} is {leaf.dtype} of rank {leaf.ndim}, and the program is for {dtype} of rank {rank}"
    if leaf.device.type != device:
        return f"{name} is on {leaf.device}, and the program runs on {device}"
    return "" if leaf.layout == torch.strided else f"{name} is {leaf.layout}"
