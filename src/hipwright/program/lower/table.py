"""The state table, which resolves `self.…` without the reference module. Runs in workers; imports torch.

{"params": {path: tensor}, "buffers": {path: tensor}, "attrs": {path: scalar or tuple}, "modules": {path: {"class",
"len", "children"}}, "training": bool}, made by the task host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from hipwright.program.language import did_you_mean
from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor, Tree, refilled


@dataclass(frozen=True)
class StateModule:
    """A submodule, or a plain object with attributes, by its path."""

    path: str


@dataclass(frozen=True)
class StateTensor:
    """A parameter or a buffer."""

    path: str
    kind: str  # "params" or "buffers"
    tensor: Any


class UnknownMember(LookupError):
    """The model has no member of that name; the message suggests a similar one."""


class StateTable:
    """Resolves paths. HostTensors become torch tensors; torch tensors are used as they are."""

    def __init__(self, tree: Tree, *, device: str = "cpu") -> None:
        self.params: dict[str, Any] = to_device(tree.get("params", {}), device)
        self.buffers: dict[str, Any] = to_device(tree.get("buffers", {}), device)
        self.attrs: dict[str, Any] = {k: _frozen(v) for k, v in tree.get("attrs", {}).items()}
        self.modules: dict[str, dict[str, Any]] = dict(tree.get("modules", {}))
        self.training = bool(tree.get("training", True))

    def tensors(self) -> dict[str, Any]:
        """Every parameter and buffer by path."""
        return {**self.params, **self.buffers}

    def member(self, module: StateModule, name: str) -> Any:
        """The value of `module.name`: StateModule, StateTensor or a plain value. Raises UnknownMember."""
        path = f"{module.path}.{name}" if module.path else name
        for kind, tensors in (("params", self.params), ("buffers", self.buffers)):
            if path in tensors:
                tensor = tensors[path]
                return StateTensor(path, kind, tensor) if tensor is not None else None
        if path in self.attrs:
            return self.attrs[path]
        if path in self.modules or self._is_prefix(path):
            return StateModule(path)
        if name == "training":
            return self.training
        known = self._names(module)
        owner = f"self.{module.path}" if module.path else "the task's Model"
        raise UnknownMember(f"{owner} has no {name}{did_you_mean(name, known) or self._listed(known)}")

    def item(self, module: StateModule, key: int | str) -> Any:
        """The value of `module[key]`. Raises UnknownMember."""
        length = self.length(module)
        if isinstance(key, int):
            if length < 0:
                raise UnknownMember(f"self.{module.path} is not a list, so it has no item {key}")
            if not -length <= key < length:
                raise UnknownMember(f"self.{module.path} has {length} items, so there is no item {key}")
            key = self._children(module)[key]
        return self.member(module, str(key))

    def items(self, module: StateModule) -> list[Any]:
        """The items of a loop over the module. Raises UnknownMember when it is not a list."""
        length = self.length(module)
        if length < 0:
            raise UnknownMember(f"self.{module.path} is not a module list; loop over one, or over range(n)")
        return [self.item(module, i) for i in range(length)]

    def length(self, module: StateModule) -> int:
        """len() of a module list; -1 for other modules."""
        return int(self.modules.get(module.path, {}).get("len", -1))

    def positions(self) -> dict[str, int]:
        """By the path of a list's item with a number for a name that is not its place: that place."""
        lists = [StateModule(path) for path in self.modules if self.length(StateModule(path)) >= 0]
        return {
            f"{one.path}.{name}".removeprefix("."): place
            for one in lists
            for place, name in enumerate(self._children(one))
            if name.isdigit() and int(name) != place
        }

    def class_of(self, module: StateModule) -> str:
        """The module's class name, "" if unknown."""
        return str(self.modules.get(module.path, {}).get("class", ""))

    def _children(self, module: StateModule) -> list[str]:
        children = [str(c) for c in self.modules.get(module.path, {}).get("children", [])]
        # the items of a ParameterList are tensors with numbers for names
        length = self.length(module)
        return children if len(children) == length else [str(i) for i in range(length)]

    def _is_prefix(self, path: str) -> bool:
        return any(key.startswith(path + ".") for group in (self.attrs, self.params, self.buffers) for key in group)

    def _names(self, module: StateModule) -> list[str]:
        lead = module.path + "." if module.path else ""
        groups = (self.params, self.buffers, self.attrs, self.modules)
        found = {key[len(lead) :].split(".")[0] for group in groups for key in group if key.startswith(lead) and key}
        return sorted(found - {""})

    def _listed(self, known: list[str]) -> str:
        return f"; it has {', '.join(known[:12])}" if known else "; it has no parameters, buffers or attributes"


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def to_device(tree: Tree, device: str) -> Any:
    """The same nesting with torch tensors on `device`; on "meta" nothing is copied, and a TensorSpec is enough.

    Shared storages stay shared.
    """
    if isinstance(tree, (tuple, list)):
        return refilled(tree, (to_device(item, device) for item in tree))
    if isinstance(tree, dict):
        return {key: to_device(item, device) for key, item in tree.items()}
    if isinstance(tree, TensorSpec):
        from hipwright.torchio import DTYPES

        if device != "meta":
            raise TypeError("a tensor's spec has no data to put on a device")
        return torch.empty_strided(tree.shape, tree.stride, dtype=DTYPES[tree.dtype], device="meta")
    if isinstance(tree, HostTensor):
        from hipwright.torchio import DTYPES, to_torch

        if device == "meta":
            return torch.empty_strided(tree.shape, tree.stride, dtype=DTYPES[tree.dtype], device="meta")
        tensor = to_torch(tree)
        return tensor if device == "cpu" else tensor.to(device)
    if isinstance(tree, torch.Tensor) and device == "meta" and tree.device.type != "meta":
        return torch.empty_strided(tree.shape, tree.stride(), dtype=tree.dtype, device="meta")
    return tree
