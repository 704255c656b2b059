"""Many small tensors moved at once: a network has hundreds of buffers, and a GPU answers each move on its own.

Runs in the task's and the device host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from hipwright.task.host.copied import is_simple

SMALL_BYTES = 1 << 16
"""Of a tensor that is moved with others."""
Groups = dict[torch.dtype, list[int]]


def cloned(tensors: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Copies, by the id of each tensor that alone fills its memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    alone = Counter(places)
    plain = [one for one, place in zip(tensors, places, strict=True) if alone[place] == 1 and _fills_memory(one)]
    made = [torch.empty_like(one) for one in plain]
    if plain:
        torch._foreach_copy_(made, plain)
    return {id(one): new for one, new in zip(plain, made, strict=True)}


def fill(targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Copies host tensors into tensors of their shapes; on a GPU, small ones of one type in one transfer."""
    groups = _groups(values, [_is_far(target) for target in targets])
    for group in groups.values():
        whole = torch.cat([values[number].reshape(-1) for number in group]).to(targets[group[0]].device)
        parts = whole.split([values[number].numel() for number in group])
        shaped = [part.view(targets[number].shape) for number, part in zip(group, parts, strict=True)]
        torch._foreach_copy_([targets[number] for number in group], shaped)
    taken = {number for group in groups.values() for number in group}
    for number, value in enumerate(values):
        if number not in taken:
            targets[number].copy_(value)


def on_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, small dense ones of a GPU copied to the host in one transfer for each type."""
    found = list(tensors)
    for group in _groups(tensors, [_is_far(tensor) for tensor in tensors]).values():
        whole = torch.cat([tensors[number].detach().reshape(-1) for number in group]).cpu()
        parts = whole.split([tensors[number].numel() for number in group])
        for number, part in zip(group, parts, strict=True):
            found[number] = part.clone().view(tensors[number].shape)
    return found


def sums_of_bits(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A number for each tensor of one device, by which a change of its bits shows; one for all small ones of a GPU."""
    small = [_bytes(one) for one in tensors if _is_far(one) and one.nbytes <= SMALL_BYTES]
    sums = [_sum_of_bits(one) for one in tensors if not _is_far(one) or one.nbytes > SMALL_BYTES]
    if small:
        whole = torch.cat(small).long()  # places count: two that exchange their values change the sum
        sums.append((whole * torch.arange(1, 1 + whole.numel(), device=whole.device)).sum())
    return sums


def _is_far(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda)


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = _bytes(tensor)
    for wide in (torch.int64, torch.int32, torch.int16):
        if flat.numel() % wide.itemsize == 0:
            return flat.view(wide).sum(dtype=torch.int64)
    return flat.sum(dtype=torch.int64)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _groups(tensors: Sequence[torch.Tensor], far: Sequence[bool]) -> Groups:
    """By type, the numbers of the small dense tensors that move between the host and a GPU."""
    found: Groups = {}
    for number, (tensor, moves) in enumerate(zip(tensors, far, strict=True)):
        if moves and tensor.is_contiguous() and 0 < tensor.nbytes <= SMALL_BYTES and is_simple(tensor):
            found.setdefault(tensor.dtype, []).append(number)
    return {dtype: group for dtype, group in found.items() if len(group) > 1}


def _fills_memory(tensor: torch.Tensor) -> bool:
    dense = tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes() > 0
    return type(tensor) is torch.Tensor and dense and not tensor.requires_grad and is_simple(tensor)
