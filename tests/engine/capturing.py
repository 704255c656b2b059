"""Captures for tests: modules that capture cannot tell apart share one graph, for the length of the session."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_GRAPHS: dict[Any, Graph] = {}
_KEPT: dict[int, Any] = {}  # objects whose identity is part of a key


def captured(model: torch.nn.Module, inputs: Sequence[Any]) -> Graph:
    """The module's graph, through JSON as between processes; equal modules and shapes are captured once."""
    key = outline(model), _signature(inputs)
    if key not in _GRAPHS:
        _GRAPHS[key] = Graph.from_json(Graph.from_dict(capture(model, list(inputs))).to_json())
    return _GRAPHS[key]


def outline(value: Any) -> Any:
    """What capture may see of a value, hashable: the code of functions, types and attributes; no values of tensors."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *map(outline, value)
    if isinstance(value, dict):
        return "dict", *((repr(key), outline(one)) for key, one in value.items())
    if isinstance(value, (set, frozenset)):
        return "set", *sorted(map(repr, value))
    if isinstance(value, torch.nn.Module):
        return _module(value)
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return _same(value.__code__), *map(outline, (value.__defaults__, value.__kwdefaults__, cells))
    return _same(value)


def _module(module: torch.nn.Module) -> Any:
    """A module's class, tensors by shape, and other attributes."""
    tensors = module.state_dict(keep_vars=True)
    found = {name: value for name, value in vars(module).items() if name not in ("_parameters", "_buffers", "_modules")}
    rest = [(name, buffer) for name, buffer in module.named_buffers(recurse=False) if name not in tensors]
    return (
        _class(type(module)),
        *((name, _shape(tensor)) for name, tensor in (*tensors.items(), *rest)),
        *((name, outline(value)) for name, value in found.items()),
        *((name, outline(value)) for name, value in module.named_children()),
    )


def _class(kind: type) -> Any:
    """A class; one that a function defines is its code, as it is another object with every call."""
    if "<locals>" not in kind.__qualname__:
        return _same(kind)
    own = {name: value for name, value in vars(kind).items() if isinstance(value, types.FunctionType)}
    return kind.__qualname__, *map(_class, kind.__bases__), outline(own)


def _same(value: Any) -> Any:
    """The identity of an object, which is kept so that no other object gets it."""
    _KEPT[id(value)] = value
    return "object", id(value)


def _signature(inputs: Sequence[Any]) -> Any:
    """Shapes, strides and dtypes of the inputs, and which of them are one tensor."""
    leaves, nest = pytree.tree_flatten(list(inputs))
    first = {id(leaf): place for place, leaf in reversed(list(enumerate(leaves)))}
    return str(nest), *((first[id(leaf)], _shape(leaf)) for leaf in leaves)


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), str(value.dtype), value.requires_grad
    return outline(value)
