"""The task's file and model on a device, and single calls of it. Runs in the device host.

The file is executed, its model constructed and its functions called with the device as torch's default device, so that
tensors without an explicit device are there; what it creates on the CPU is moved. Layouts stay as the file made them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch

from hipwright.digest import digest, span
from hipwright.errors import TaskError
from hipwright.targets import TORCH_GPU
from hipwright.task.device.leaf import pieces
from hipwright.task.host import state as states
from hipwright.task.host.copied import copied
from hipwright.task.host.double_precision import float64, widen
from hipwright.task.host.load import SUPPORTED, TaskModule, seed_everything
from hipwright.task.host.modes.rounded_sums import RoundedSums
from hipwright.task.host.modes.ties import TieMarker
from hipwright.task.host.modes.value_checks import values_checked
from hipwright.task.host.reference import RUN_SEED, named_leaves
from hipwright.task.nudges import CATEGORIES, CATEGORY_SAMPLE, NOISE_TILE, NUDGES, Nudge
from hipwright.tensors import Tree
from hipwright.torchio import NAMES, full_precision, map_torch

_PLAIN = (bool, int, float, str, type(None))
_ALIGNED = 256  # bytes that device allocations are aligned to at least: some operators refuse what is not, by 16
_NO_ROOM = ("out of memory", "can't allocate memory")


class DeviceFile:
    """A task file on `device`. Raises TaskError as TaskFile does."""

    def __init__(self, name: str, source: str, device: torch.device) -> None:
        self.device = device
        full_precision()
        with device:
            self.file = TaskModule(name, source)
            self._template = self.file.model(0)
        self.settle(self._template)

    def call(self, fn: Callable[[], Any]) -> Any:
        """fn() with the device as default; where that fails, again without, for files that need the CPU.

        What has no room on the device is not tried on the CPU, and what has none on the CPU is told by the device.
        """
        try:
            with self.device:
                return fn()
        except TaskError as error:
            if self.device.type == "cpu" or is_memory(error):
                raise
            first = error
        try:
            return fn()
        except TaskError as error:
            if is_memory(error):
                raise first from first.__cause__
            raise

    def inputs(self, seed: int, group: int | None) -> list[Any]:
        """get_inputs() or one of the groups, on the device."""
        drawn: list[Any] = self.call(lambda: self.file.inputs(seed, group))
        return map_torch(drawn, lambda tensor: moved_to(tensor.detach(), self.device))  # type: ignore[no-any-return]

    def model(self, state: Tree | None = None) -> torch.nn.Module:
        """A new model on the device, set to a state table of HostTensors."""
        try:
            model = copied(self._template)
        except Exception:
            with self.device:
                model = self.file.model(0)  # not every module can be copied
            self.settle(model)
        if state is not None:
            states.apply(model, state)
        return model

    def settle(self, model: torch.nn.Module) -> None:
        """Moves parameters, buffers and plain tensor attributes."""
        model.to(self.device)
        states.change_plain(model, lambda tensor: moved_to(tensor, self.device))


class ModelCall:
    """One call of a model on tensors, and its observable effects."""

    def __init__(
        self,
        file: DeviceFile,
        model: torch.nn.Module,
        args: list[Any],
        *,
        exact: bool = False,
        close: str = "",
        equals: bool = True,
        seed: int = RUN_SEED,
        sums: RoundedSums | None = None,
    ) -> None:
        self._name = file.file.name
        self._args = args
        self._model = model
        versions = [tensor._version for _, tensor in named_leaves("inputs", args)]
        seed_everything(seed)
        before = _generators(file.device)
        own = (tensor for _, tensor in named_leaves("inputs", args))
        choices = TieMarker(close, own, equals=equals) if close else None
        mode: AbstractContextManager[None] = float64(choices, sums=sums) if exact else nullcontext()
        start = time.perf_counter()
        with torch.no_grad(), file.device, values_checked(file.file.source), mode:
            result = file.file.guarded(lambda: model(*args), "forward")
        if choices is not None:
            result = map_torch(result, choices.settled)
        synchronize(file.device)
        self.seconds = time.perf_counter() - start
        self.drew = before != _generators(file.device)
        now = named_leaves("inputs", args)
        self.mutated = [path for (path, leaf), version in zip(now, versions, strict=True) if leaf._version != version]
        self.result = self._supported(result)

    def _supported(self, result: Any) -> Any:
        """Tuples of any class as plain ones; raises TaskError for a leaf that cannot be compared."""
        if isinstance(result, torch.Tensor) and result.dtype in NAMES:
            return result.detach().resolve_conj().resolve_neg()
        if isinstance(result, (tuple, list)):
            return (tuple if isinstance(result, tuple) else list)(map(self._supported, result))
        if isinstance(result, dict):
            return {str(key): self._supported(item) for key, item in result.items()}
        if isinstance(result, _PLAIN):
            return result
        what = f"a tensor of {result.dtype}" if isinstance(result, torch.Tensor) else f"a {type(result).__name__}"
        raise TaskError(f"{self._name}: an output is not supported: {what}", hint=f"supported: {SUPPORTED}")

    def leaves(self) -> list[tuple[str, torch.Tensor]]:
        """The output tensors."""
        return list(named_leaves("output", self.result))

    def holders(self) -> dict[int, list[str]]:
        """Storage address -> the inputs, parameters and buffers in it."""
        groups = list(named_leaves("inputs", self._args))
        groups += [(f"params.{path}", tensor) for path, tensor in states.parameters(self._model)]
        groups += [(f"buffers.{path}", tensor) for path, tensor in states.buffers(self._model)]
        found: dict[int, list[str]] = {}
        for name, tensor in groups:
            found.setdefault(memory(tensor), []).append(name)
        return found

    def aliases(self) -> list[list[str]]:
        """[output leaf, what it shares memory with], for inputs, parameters, buffers and earlier outputs."""
        holders, pairs = self.holders(), []
        for name, tensor in self.leaves():
            if address := memory(tensor):
                pairs += [[name, holder] for holder in holders.get(address, [])]
                holders.setdefault(address, []).append(name)
        return pairs

    def digests(self) -> list[int]:
        """Digests of the outputs' values."""
        return [digest(tensor, 0) for _, tensor in self.leaves()]


def is_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, of the device or of the machine: not every library raises torch's own error."""
    cause = error.__cause__ if isinstance(error, TaskError) else error
    if isinstance(cause, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(cause, RuntimeError) and any(word in str(cause).lower() for word in _NO_ROOM)


def memory(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def moved_to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same values, strides and alignment on the device; the tensor itself when it is there."""
    if tensor.device == device or tensor.numel() == 0:
        return tensor.to(device)
    flat = span(tensor.resolve_conj().resolve_neg()).view(tensor.dtype)
    start = tensor.storage_offset() % (_ALIGNED // tensor.element_size())
    if not start:
        return torch.as_strided(flat.to(device), tensor.shape, tensor.stride())
    whole = torch.empty(start + flat.numel(), dtype=tensor.dtype, device=device)
    whole[start:].copy_(flat)
    return torch.as_strided(whole, tensor.shape, tensor.stride(), start)


def widened(args: list[Any]) -> list[Any]:
    """Float leaves as new float64 tensors of the same layout and sharing."""
    cache: dict[int, torch.Tensor] = {}

    def one(tensor: torch.Tensor) -> torch.Tensor:
        wide = widen(tensor, cache)
        return wide.clone() if wide is tensor and tensor.is_floating_point() else wide

    return map_torch(args, one)  # type: ignore[no-any-return]


_CACHED = 1 << 18  # elements that stay in a processor's cache: four times faster than pieces that do not


def nudge(
    tensors: Iterator[tuple[torch.Tensor, torch.Tensor]],
    generator: torch.Generator,
    way: Nudge = NUDGES[0],
    *,
    categories: bool = False,
) -> None:
    """Moves every float element, in place, by about the rounding error of an honest kernel.

    By the rule of `verify.inputs.nudge`, in units of the tensor paired with each: the whole one in the task's own
    dtype. categories: as there.
    """
    seen: set[tuple[int, int]] = set()
    small: dict[_Alike, list[torch.Tensor]] = {}
    for tensor, like in tensors:
        key = (memory(tensor), tensor.storage_offset())
        if not tensor.is_floating_point() or not tensor.numel() or key in seen:
            continue
        seen.add(key)
        flat = span(tensor).view(tensor.dtype)
        if categories and _categorical(flat):
            continue
        alike = _Alike.of(tensor, like, flat)
        if flat.numel() <= _SMALL and flat.numel() % alike.row == 0:
            small.setdefault(alike, []).append(flat)
        else:
            _move(flat, alike, generator, way)
    for alike, flats in small.items():  # a network's hundreds of vectors, by a few operators
        whole = torch.cat(flats) if len(flats) > 1 else flats[0]
        _move(whole, alike, generator, way)
        if len(flats) > 1:
            torch._foreach_copy_(flats, list(whole.split([flat.numel() for flat in flats])))


_SMALL = 1 << 16
"""Elements up to which tensors of one kind are moved together."""


@dataclass(frozen=True)
class _Alike:
    """What tensors have in common that are moved by the same rule. row: elements of the last dimension."""

    dtype: torch.dtype
    like: torch.dtype
    terms: int
    row: int

    @classmethod
    def of(cls, tensor: torch.Tensor, like: torch.Tensor, flat: torch.Tensor) -> _Alike:
        terms = min(max(like.shape, default=1), 1024) if like.dtype in (torch.float32, torch.float64) else 1
        row = tensor.shape[-1] if tensor.dim() and tensor.is_contiguous() else flat.numel()
        return cls(tensor.dtype, like.dtype, terms, row)


def computed(dtype: torch.dtype) -> torch.dtype:
    """In which dtype a kernel rounds what it computes with a float tensor (`verify.tolerance.computed`)."""
    return dtype if dtype.itemsize > 1 else torch.bfloat16


def _move(flat: torch.Tensor, alike: _Alike, generator: torch.Generator, way: Nudge) -> None:
    """Moves the elements of tensors of one kind, in place."""
    roundoff = torch.finfo(computed(alike.like)).eps / 2
    size = roundoff * max(1.0, sqrt(alike.terms) / 3)
    equal = roundoff * alike.terms / 8  # of rows of one value
    noise = _Noise(flat, generator)
    for start, stop in pieces(0, flat.numel(), alike.row, None if flat.is_cuda else _CACHED):
        values = flat[start:stop].double().view(-1, min(alike.row, stop - start))
        by = noise(start, values)
        by += 0.5 if way.scaling else values.sign().mul_(0.5)
        by *= way.size * _step(values, size, equal)
        flat[start:stop] = values.mul_(by.add_(1.0)).view(-1)  # what is not finite stays so


class _Noise:
    """Uniform numbers between -1 and 1, repeated after `NOISE_TILE` of them."""

    def __init__(self, like: torch.Tensor, generator: torch.Generator) -> None:
        made = torch.empty(min(like.numel(), NOISE_TILE), dtype=torch.float64, device=like.device)
        self._tile = made.uniform_(-1.0, 1.0, generator=generator)

    def __call__(self, start: int, like: torch.Tensor) -> torch.Tensor:
        """The numbers of the elements from `start` on, in the shape of `like`."""
        first, count, size = start % self._tile.numel(), like.numel(), self._tile.numel()
        parts = [self._tile[first : first + count]]
        while (missing := count - sum(part.numel() for part in parts)) > 0:
            parts.append(self._tile[: min(missing, size)])
        return torch.cat(parts).view(like.shape)


def _step(values: torch.Tensor, size: float, equal: float) -> Any:
    """The size of a nudge: a larger one, `equal`, in rows of one value."""
    if equal <= size or (values.shape[1] > 1 and not bool((values[:, 0] == values[:, 1]).any())):
        return size
    return torch.where((values == values[:, :1]).all(1, keepdim=True), equal, size)


def _categorical(flat: torch.Tensor) -> bool:
    """Whether the elements are whole numbers of few kinds."""
    some = flat[:CATEGORY_SAMPLE].double().unique()
    if not 2 <= some.numel() <= CATEGORIES or not bool((some == some.round()).all()):
        return False
    return all(bool(torch.isin(flat[start:stop].double(), some).all()) for start, stop in pieces(0, flat.numel(), 1))


def synchronize(device: torch.device) -> None:
    """Waits for all work of the device."""
    if device.type == TORCH_GPU:
        torch.cuda.synchronize(device)


def allocated_bytes(device: torch.device) -> int:
    """Of this process's tensors now; `peak_bytes` counts from here on. 0 on the CPU."""
    if device.type != TORCH_GPU:
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return int(torch.cuda.memory_allocated(device))


def peak_bytes(device: torch.device) -> int:
    """Of this process's tensors at the most."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == TORCH_GPU else 0


def give_back(device: torch.device) -> None:
    """Returns to the device what torch only keeps."""
    if device.type == TORCH_GPU:
        torch.cuda.empty_cache()


def _generators(device: torch.device) -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state(legacy=True)
    own = torch.cuda.get_rng_state(device).numpy().tobytes() if device.type == TORCH_GPU else b""
    torch_state = torch.get_rng_state().numpy().tobytes()
    return torch_state, own, random.getstate(), numpy_state[1].tobytes(), numpy_state[2:]
