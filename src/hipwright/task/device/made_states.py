"""State tables that are made on the device, by recipe, and stay there. Runs in the device host.

The rules are those of `verify.inputs.state`, in torch. The latest tables are kept up to a share of the device's memory;
one that was dropped is made again, with the same bits.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from hipwright.digest import span
from hipwright.held import Recipe, key_of
from hipwright.task.device.model import DeviceFile, memory, nudge
from hipwright.task.host import state as states
from hipwright.task.nudges import Nudge
from hipwright.tensors import Tree

Params = dict[str, torch.Tensor]


class MadeStates:
    """The tables of one task. most: bytes that they may take together."""

    def __init__(self, file: DeviceFile, most: int) -> None:
        self._file, self._most = file, most
        self._tables: OrderedDict[str, Tree] = OrderedDict()

    def get(self, recipe: Recipe) -> Tree:
        """The state table of a recipe, with torch tensors; its buffers are those of a new model."""
        key = key_of(recipe)
        if key not in self._tables:
            self._tables[key] = self._made(recipe)
        self._tables.move_to_end(key)
        while len(self._tables) > 1 and _bytes(self._tables.values()) > self._most:
            self._tables.popitem(last=False)
        return self._tables[key]

    def clear(self) -> None:
        """Drops all tables."""
        self._tables.clear()

    def _made(self, recipe: Recipe) -> Tree:
        if recipe["kind"] == "init":
            model = self._file.call(lambda: self._file.file.model(recipe["seed"]))
            self._file.settle(model)
            return states.build(model, lambda tensor: tensor.detach())
        base = self.get(recipe["of"])
        return {**base, "params": CHANGES[recipe["kind"]](self, base["params"], recipe)}


def places(params: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """By path, the first path of a parameter that lies at the same memory."""
    first: dict[Any, str] = {}
    return {path: first.setdefault(_where(tensor), path) for path, tensor in params.items()}


def separate(params: Mapping[str, torch.Tensor]) -> bool:
    """Whether parameters that share memory are the same tensor, so that places tell all that is shared."""
    shared: dict[int, Any] = {}
    return all(shared.setdefault(memory(t), _where(t)) == _where(t) for t in params.values() if t.numel())


def _where(tensor: torch.Tensor) -> tuple[Any, ...]:
    return memory(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def _each(params: Params, change: Callable[[str, torch.Tensor], torch.Tensor]) -> Params:
    """The table with every float parameter changed, tied ones once."""
    made: dict[str, torch.Tensor] = {}
    for path, place in places(params).items():
        if place == path:
            tensor = params[path]
            changes = tensor.is_floating_point() or tensor.is_complex()
            made[path] = change(path, tensor) if changes and tensor.numel() else tensor
        else:
            made[path] = made[place]
    return made


def _randomised(tables: MadeStates, params: Params, recipe: Recipe) -> Params:
    """Noise in place of constant defaults (`verify.inputs.randomise_state`)."""
    twins: Params = tables.get(recipe["twin"])["params"]

    def one(path: str, tensor: torch.Tensor) -> torch.Tensor:
        first = float(tensor.reshape(-1)[0].real)
        if first != first or abs(first) == float("inf") or not bool((tensor == tensor.reshape(-1)[0]).all()):
            return tensor
        twin = twins.get(path)
        if twin is not None and twin.shape == tensor.shape and not bool((twin == tensor).all()):
            return tensor  # a single random element
        generator = _generator(tensor, recipe["seed"], recipe["name"], path)
        values = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        if first == 0.0:
            return _laid_out(tensor, values.normal_(0.0, 0.3, generator=generator))
        return _laid_out(tensor, values.uniform_(0.5, 1.5, generator=generator) * first)

    return _each(params, one)


def _whole(tables: MadeStates, params: Params, recipe: Recipe) -> Params:
    """Whole numbers (`verify.inputs.whole_state`)."""

    def one(path: str, tensor: torch.Tensor) -> torch.Tensor:
        generator = _generator(tensor, recipe["seed"], "whole", path)
        several = tensor.dim() > 1
        form, most = ((1,) * tensor.dim(), 3) if several else (tuple(tensor.shape), 5)
        drawn = torch.randint(1, most, form, generator=generator, device=tensor.device)
        return _laid_out(tensor, drawn.expand(tensor.shape))

    return _each(params, one)


def _nudged(tables: MadeStates, params: Params, recipe: Recipe) -> Params:
    """Every element moved by about an honest kernel's rounding (`verify.inputs.nudge`), in its own dtype."""
    made = _each(params, lambda path, tensor: _laid_out(tensor, tensor))
    some = next(iter(made.values()), None)
    if some is not None:
        way = Nudge(recipe["size"], recipe["scaling"], sums=False)
        nudge(((tensor, tensor) for tensor in made.values()), _generator(some, recipe["seed"], "nudge", ""), way)
    return made


def _absolute(tables: MadeStates, params: Params, recipe: Recipe) -> Params:
    return _each(params, lambda path, tensor: _laid_out(tensor, tensor.abs()))


CHANGES: dict[str, Callable[[MadeStates, Params, Recipe], Params]] = {
    "randomised": _randomised,
    "whole": _whole,
    "nudged": _nudged,
    "absolute": _absolute,
}
"""Kinds of recipes beside "init"; a further one is a function and a line here."""


def _laid_out(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values in the dtype and strides of another tensor, in memory of their own."""
    made = torch.zeros_like(span(like)).view(like.dtype).as_strided(like.shape, like.stride())
    if any(step == 0 and n > 1 for step, n in zip(like.stride(), like.shape, strict=True)):
        made = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    return made.copy_(values)


def _generator(like: torch.Tensor, *parts: object) -> torch.Generator:
    raw = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return torch.Generator(like.device).manual_seed(int.from_bytes(raw[:7], "little"))


def _bytes(tables: Iterable[Tree]) -> int:
    """Bytes of the parameters of all tables together; what they share counts once."""
    storages = {memory(t): t.untyped_storage().nbytes() for table in tables for t in table["params"].values()}
    return sum(storages.values())
