"""Nestings of torch tensors: copies to and from the device, comparison, and writes at their addresses.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from hipwright.errors import CandidateError
from hipwright.tensors import HostTensor, Tree, map_tensors
from hipwright.torchio import INTEGERS, map_torch, to_torch, tree_from_torch
from hipwright.verify.worker.staging import PinnedStaging

Tensor = Any  # torch.Tensor, untyped here


def named_tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of a nesting in order: output, output[0], output['x']."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from named_tensors(item, f"{path}[{index}]")


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a nesting in order."""
    return [tensor for _, tensor in named_tensors(value, "")]


def address(tensor: Tensor) -> int:
    """The address of the tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def on_device(tree: Tree, device: str, staging: PinnedStaging | None = None) -> Any:
    """A tree of HostTensors as torch tensors; on the cpu they are views of the same memory. Sharing is kept."""
    homes: dict[int, Tensor] = {}

    def one(host: HostTensor) -> Tensor:
        plain = to_torch(host)
        if device == "cpu":
            return plain
        if not host.numel:
            return plain.to(device)
        if id(host.storage) not in homes:
            raw = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage())
            # staged before it returns, and not waited for: host memory may change afterwards
            homes[id(host.storage)] = staging.upload(raw) if staging else raw.to(device, non_blocking=True)
        home = homes[id(host.storage)].untyped_storage()
        return torch.empty(0, dtype=plain.dtype, device=device).set_(home, host.offset, host.shape, host.stride)

    return map_tensors(tree, one)


def guarded(tree: Any, guard: Callable[[Tensor], Tensor]) -> Any:
    """The tree's tensors in guarded memory; those that shared a storage share it again."""
    homes: dict[int, tuple[Tensor, int]] = {}

    def one(tensor: Tensor) -> Tensor:
        if not tensor.numel():
            return tensor
        known = homes.get(address(tensor))
        if known is None:
            out = guard(tensor)
            front = out.storage_offset() * out.element_size() - tensor.storage_offset() * tensor.element_size()
            homes[address(tensor)] = out, front
            return out
        home, front = known
        offset = front // tensor.element_size() + tensor.storage_offset()
        return torch.empty(0, dtype=tensor.dtype, device=home.device).set_(
            home.untyped_storage(), offset, tensor.shape, tensor.stride()
        )

    return map_torch(tree, one)


def differing(live: Any, originals: Any) -> list[int]:
    """Which tensor leaves differ in a bit from the originals (NaN equals itself). Synchronises once."""
    alike, flags = difference(live, originals)
    return numbers(alike, read(flags))


def difference(live: Any, originals: Any) -> tuple[list[bool], list[Tensor]]:
    """(which leaves have the originals' form, a flag on the device for each of those). No synchronisation."""
    pairs = list(zip(tensors_of(live), tensors_of(originals), strict=True))
    alike = [a.shape == b.shape and a.dtype == b.dtype and a.device == b.device for a, b in pairs]
    return alike, [(bits(a) != bits(b)).any() for (a, b), same in zip(pairs, alike, strict=True) if same]


def numbers(alike: Sequence[bool], differs: Sequence[bool]) -> list[int]:
    """The leaves that differ, from the result of `difference` and its flags' values."""
    flags = iter(differs)
    return [index for index, same in enumerate(alike) if not same or next(flags)]


def read(flags: Sequence[Tensor]) -> list[bool]:
    """The values of flags. Synchronises once."""
    return torch.stack(list(flags)).tolist() if flags else []


def bits(tensor: Tensor) -> Tensor:
    """The same elements as integers; a complex one's parts along a last dimension of 2."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.view(INTEGERS[tensor.element_size()])


def refill(live: Any, originals: Any, *, keep_version: bool = False, look: bool = True) -> None:
    """Writes values into tensors at their addresses; those that hold them already are not written (no version bump).

    keep_version: without a version bump for any, as kernels write, to detect a program that caches results by version.
    look: False writes all of them, without the wait for the device that the check needs.
    """
    pairs = list(zip(tensors_of(live), tensors_of(originals), strict=True))
    if any(tensor.shape != value.shape for tensor, value in pairs):
        raise CandidateError("the shapes changed between two calls at the same address", stage="verify")
    for index in differing(live, originals) if look else range(len(pairs)):
        tensor, value = map(once, pairs[index])
        (tensor.data if keep_version else tensor).copy_(value)


def once(tensor: Tensor) -> Tensor:
    """The tensor with one element along each dimension of stride 0, where all are the same memory."""
    for axis, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def refillable(live: Any, originals: Any) -> bool:
    """Whether `live` can hold the values of `originals`: dimensions of stride 0 are the same in both, and tensors of
    `live` that share memory share it in both.
    """
    old, new = ([once(tensor) for tensor in tensors_of(tree)] for tree in (live, originals))
    if [tensor.shape for tensor in old] != [tensor.shape for tensor in new]:
        return False
    return all(mine in (None, theirs) for mine, theirs in zip(_shared(old), _shared(new), strict=True))


def _shared(tensors: Sequence[Tensor]) -> list[tuple[int, int, tuple[int, ...]] | None]:
    """For each tensor that has the memory of an earlier one, which that is, and where it lies in it; else None."""
    first: dict[int, int] = {}
    found: list[tuple[int, int, tuple[int, ...]] | None] = []
    for number, tensor in enumerate(tensors):
        holder = first.setdefault(address(tensor), number) if tensor.numel() else number
        place = (tensor.storage_offset() - tensors[holder].storage_offset()) * tensor.element_size()
        found.append(None if holder == number else (holder, place, tuple(tensor.stride())))
    return found


def to_host(value: Any, device: str) -> Tree:
    """Outputs as HostTensors. Raises CandidateError for a value that no output can be."""
    return start_fetch(value, device)()


def start_fetch(value: Any, device: str, staging: PinnedStaging | None = None) -> Callable[[], Tree]:
    """Starts to copy outputs to the host, as far as they can be staged; returns a function that gives them as
    HostTensors, to be called after a wait for the device. It raises CandidateError for a value that no output can be.
    """
    own = torch.device(device)
    here = [tensor for tensor in tensors_of(value) if tensor.device == own and tensor.numel()]
    begun = {id(tensor): staging.download(_span(tensor)) for tensor in here} if staging is not None else {}

    def fetched(tensor: Tensor) -> Tensor:
        """The tensor in host memory with its own strides, stride 0 and gaps included."""
        if tensor.device != own:
            raise TypeError(f"a tensor on {tensor.device}, not on {device}")
        if id(tensor) in begun:
            return begun[id(tensor)]().as_strided(tensor.shape, tensor.stride())
        if device == "cpu":
            return tensor
        if not tensor.numel():
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        return _span(tensor).cpu().as_strided(tensor.shape, tensor.stride())

    def tree() -> Tree:
        try:
            return tree_from_torch(map_torch(value, fetched))
        except TypeError as error:
            raise CandidateError(
                f"the program returns what cannot be compared: {error}", status="bad_output_spec"
            ) from error

    return tree


def _span(tensor: Tensor) -> Tensor:
    """The memory from the tensor's first element to its last, as a 1-D tensor."""
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((extent,), (1,), tensor.storage_offset())
