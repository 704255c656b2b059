"""Copies of modules, as `copy.deepcopy` makes them, several times as fast. Runs in the task host.

Networks of a thousand submodules are copied for every run of the reference. deepcopy asks each object how it is reduced
and built again; a module without rules of its own is its attributes, most of which are empty tables of hooks.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

_SAME = frozenset({type(None), bool, int, float, complex, str, bytes, type, FunctionType, BuiltinFunctionType})
"""Types whose objects deepcopy takes as they are."""
_RULES = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
_PLAIN: dict[type, bool] = {}


def copied(model: torch.nn.Module, shared: Mapping[int, Any] | None = None) -> torch.nn.Module:
    """A deep copy. shared: objects by their id that the copy has too. Raises what deepcopy raises."""
    found: torch.nn.Module = _copied(model, dict(shared or {}))
    return found


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _SAME:
        return value
    if (known := memo.get(id(value))) is not None:
        return known
    if kind is dict or (kind is OrderedDict and not value.__dict__):
        made = memo[id(value)] = kind()
        for key, item in value.items():
            made[_copied(key, memo)] = _copied(item, memo)
        return made
    if kind is set and not value:
        return memo.setdefault(id(value), set())
    if kind is tuple and all(type(item) in _SAME for item in value):
        return value
    if kind not in _PLAIN:
        _PLAIN[kind] = issubclass(kind, torch.nn.Module) and _is_plain(kind)
    if not _PLAIN[kind]:
        return copy.deepcopy(value, memo)
    module = memo[id(value)] = object.__new__(kind)
    held = {name: _copied(item, memo) for name, item in value.__dict__.items()}
    module.__dict__.update(held)
    return module


def _is_plain(kind: type) -> bool:
    """Whether a class of modules says nothing of its own of how it is copied."""
    base = torch.nn.Module
    own = (one.__dict__ for one in kind.__mro__ if one is not object)
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in _RULES) and not any(
        name in names for names in own for name in ("__new__", "__slots__")
    )
