"""Copies of modules, as `copy.deepcopy` makes them, several times as fast. Runs in the task host.

Networks of a thousand submodules are copied for every run of the reference. deepcopy asks each object how it is reduced
and built again; a module without rules of its own is its attributes, most of which are empty tables of hooks. What
torch's own modules do with a pickled state is to add what older versions had not; a recurrent layer does more.
"""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from hipwright.targets import TORCH_GPU

_SAME = frozenset({type(None), bool, int, float, complex, str, bytes, type, FunctionType, BuiltinFunctionType})
"""Types whose objects deepcopy takes as they are."""
_RULES = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
_SET_STATE = "__setstate__"
_RECURRENT = "torch.nn.modules.rnn"
_PLAIN: dict[type, bool] = {}
_CONTAINERS = (dict, set, list)
_TABLES = ("_reversed_padding_repeated_twice",)
"""Lists that torch's modules only read."""


def copied(model: torch.nn.Module, shared: Mapping[int, Any] | None = None) -> torch.nn.Module:
    """A deep copy. shared: objects by their id that the copy has too. Raises what deepcopy raises."""
    found: torch.nn.Module = _copied(model, dict(shared or {}))
    return found


class SharedModules:
    """The modules of a model that its copies have in common (`steady`), and whether a call has changed one."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = [module for module in model.modules() if module is not model and steady(module)]
        self.by_id: dict[int, Any] = {id(module): module for module in self._modules}
        self._before = self._attributes()

    def changed(self) -> bool:
        """Whether an attribute or a parameter of one is another object than it was."""
        now = self._attributes()
        return len(now) != len(self._before) or not all(map(operator.is_, now, self._before))

    def _attributes(self) -> list[Any]:
        tables = [vars(module) for module in self._modules]
        return [item for table in tables for one in (table, table["_parameters"]) for item in one.values()]


def steady(module: torch.nn.Module) -> bool:
    """Whether a module's own forward changes nothing of it, so that copies of a model may have it in common: one of
    torch's, without parts, buffers and hooks, whose attributes are constants.
    """
    kind = type(module)
    torchs = kind.__module__.startswith("torch.nn.modules.") and kind.__module__ != _RECURRENT
    return torchs and all(
        type(item) in _SAME or name in _TABLES or (not (isinstance(item, _CONTAINERS) and item) and _is_constant(item))
        for name, item in vars(module).items()
        if not (name == "_parameters" and all(map(_is_parameter, item.values())))
    )


def _is_constant(item: Any) -> bool:
    return isinstance(item, _CONTAINERS) or (type(item) is tuple and all(type(one) in _SAME for one in item))


def _is_parameter(item: Any) -> bool:
    return item is None or type(item) is torch.nn.Parameter


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _SAME:
        return value
    if (known := memo.get(id(value))) is not None:
        return known
    if kind is dict or (kind is OrderedDict and not value.__dict__):
        made = memo[id(value)] = kind()
        for key, item in value.items():  # most are empty; most keys are names
            name = key if type(key) in _SAME else _copied(key, memo)
            made[name] = item if type(item) in _SAME else _copied(item, memo)
        return made
    if kind is torch.nn.Parameter and is_simple(value):
        return memo.setdefault(id(value), torch.nn.Parameter(value.data.clone(), value.requires_grad))
    if kind is torch.Tensor and is_simple(value):
        return memo.setdefault(id(value), _tensor(value, memo))
    if kind is set and not value:
        return memo.setdefault(id(value), set())
    if kind is tuple and all(type(item) in _SAME for item in value):
        return value
    if kind not in _PLAIN:
        _PLAIN[kind] = issubclass(kind, torch.nn.Module) and _is_plain(kind)
    if not _PLAIN[kind]:
        return copy.deepcopy(value, memo)
    module = memo[id(value)] = object.__new__(kind)
    held = {name: item if type(item) in _SAME else _copied(item, memo) for name, item in value.__dict__.items()}
    module.__dict__.update(held)
    return module


def is_simple(tensor: torch.Tensor) -> bool:
    """Whether a tensor is memory with strides, without gradients, hooks or attributes."""
    return (
        tensor.device.type in ("cpu", TORCH_GPU)
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and tensor.grad is None
        and not (tensor.__dict__ or tensor._backward_hooks or tensor.is_quantized)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def _tensor(value: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A tensor on a copy of its memory, which tensors share as they did: `memo` has torch's own table of copies."""
    storage = value.untyped_storage().__deepcopy__(memo)
    made = torch.empty(0, dtype=value.dtype, device=value.device)
    made.set_(storage, value.storage_offset(), value.shape, value.stride())
    return made.requires_grad_(value.requires_grad)


def _is_plain(kind: type) -> bool:
    """Whether a class of modules says nothing of its own of how it is copied."""
    base = torch.nn.Module
    own = (one.__dict__ for one in kind.__mro__ if one is not object)
    ruled = [name for name in _RULES if getattr(kind, name, None) is not getattr(base, name, None)]
    return all(name == _SET_STATE and _adds_only(kind) for name in ruled) and not any(
        name in names for names in own for name in ("__new__", "__slots__")
    )


def _adds_only(kind: type) -> bool:
    """Whether every __setstate__ of a class is one of torch's that add missing attributes."""
    found = (vars(one)[_SET_STATE].__module__ for one in kind.__mro__ if _SET_STATE in vars(one))
    return all(place.startswith("torch.nn.modules.") and place != _RECURRENT for place in found)
