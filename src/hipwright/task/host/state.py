"""The state table of a model: everything that a program's `self.…` can refer to. Runs in the task host."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from hipwright.errors import TaskError
from hipwright.tensors import HostTensor, Tree
from hipwright.torchio import from_torch, to_torch

_INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
_LISTS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)
_UNKNOWN = object()


def build(model: torch.nn.Module, leaf: Callable[[torch.Tensor], Any] | None = None) -> Tree:
    """The table of `model`: copies of its tensors (tied ones share a storage), its plain attributes, its modules.

    leaf: replaces a tensor by something other than a copy.
    """
    seen: dict[int, Any] = {}
    one = leaf or (lambda tensor: from_torch(tensor, seen))
    params = {path: one(tensor) for path, tensor in parameters(model)}
    held = {path: one(tensor) for path, tensor in buffers(model)}
    attrs: dict[str, Any] = {}
    modules: dict[str, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        modules[path] = _describe(module)
        attrs |= {_join(path, name): value for name, value in _attributes(module)}
    return {"params": params, "buffers": held, "attrs": attrs, "modules": modules, "training": model.training}


def parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(path, tensor) of every parameter, under each of its names."""
    yield from model.named_parameters(remove_duplicate=False)


def buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(path, tensor) of every buffer, persistent or not, and of every plain tensor attribute."""
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and name not in _INTERNAL:
                yield _join(path, name), value


def apply(model: torch.nn.Module, table: Tree) -> None:
    """Sets every parameter and buffer of `model` to the table's values, host or torch tensors.

    Raises TaskError where they do not fit.
    """
    given: dict[str, HostTensor | torch.Tensor] = {**table["params"], **table["buffers"]}
    with torch.no_grad():
        for path, tensor in (*parameters(model), *buffers(model)):
            if path not in given:
                continue
            held = given[path]
            value = held if isinstance(held, torch.Tensor) else to_torch(held)
            if value.shape != tensor.shape or value.dtype != tensor.dtype:
                raise TaskError(f"self.{path} is {tensor.dtype} {tuple(tensor.shape)} here and not what was given")
            _fill(tensor, value)


def _fill(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        tensor.data = value.clone().to(tensor.device)  # an expanded tensor cannot be written to in place
    else:
        tensor.data.copy_(value)


def to_double(model: torch.nn.Module) -> None:
    """Every float parameter, buffer and plain tensor attribute to float64 (complex128), in place; integers stay."""
    model._apply(widened)
    change_plain(model, widened)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A float tensor as float64, a complex one as complex128; others as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def to_meta(model: torch.nn.Module) -> None:
    """Removes the data of every tensor, in place."""
    model.to("meta")
    change_plain(model, lambda tensor: tensor.to("meta"))


def change_plain(model: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replaces every plain tensor attribute, in place."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and name not in _INTERNAL:
                vars(module)[name] = change(value)


def _describe(module: torch.nn.Module) -> dict[str, Any]:
    children = [name for name, child in module._modules.items() if child is not None]
    length = len(module) if isinstance(module, _LISTS) else -1
    return {"class": type(module).__name__, "len": length, "children": children}


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Names and plain values: of the instance, of the user's own classes, and None for absent parameters."""
    for cls in reversed(type(module).__mro__):
        if not cls.__module__.startswith("torch.") and cls is not object:
            yield from _plain_items(vars(cls))
    for absent in (module._parameters, module._buffers, module._modules):
        yield from ((name, None) for name, value in absent.items() if value is None)
    for name, value in vars(module).items():
        if name in _INTERNAL:
            continue
        if (held := _held(value)) is not None:
            yield from ((f"{name}.{key}", item) for key, item in _plain_items(held))
        else:
            yield from _plain_items({name: value})


def _held(value: Any) -> dict[str, Any] | None:
    """What a record holds by name, with slots or without; None for another value, a class of records included."""
    if isinstance(value, types.SimpleNamespace):
        return vars(value)
    if isinstance(value, type) or not is_dataclass(value):
        return None
    slots = {one.name: getattr(value, one.name) for one in fields(value) if hasattr(value, one.name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _plain_items(items: Any) -> Iterator[tuple[str, Any]]:
    for name, value in items.items():
        if not name.startswith("__") and (plain := _plain(value)) is not _UNKNOWN:
            yield name, plain


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value).removeprefix("torch.")
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, (tuple, list)):
        items = tuple(_plain(item) for item in value)
        return _UNKNOWN if any(item is _UNKNOWN for item in items) else items
    return _UNKNOWN


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
