"""Large tensors as bytes: their span of storage, and an exact digest of it, the same on every device. Imports torch.

Both processes that hold a task's inputs use this module: the host that draws them, and the worker that gets them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_BLOCK_WORDS = 1 << 21  # of 8 bytes: temporaries of 16 MiB, which stay in a GPU's last-level cache
_SMALL_WORDS = 1 << 14  # tensors up to this size are mixed together, as many as fit into a block
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # splitmix64 (Steele, Lea and Flood 2014)
_SHIFTS = (30, 27, 31)
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def span(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from a tensor's first element to its last, in storage order: a 1-D uint8 view.

    For a dense tensor these are its elements alone; gaps between elements are included, repetitions by stride 0 are
    not. Shape, strides and the bytes determine the tensor.
    """
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8, device=tensor.device)
    elements = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return torch.as_strided(tensor.detach(), (elements,), (1,)).view(torch.uint8)


def digest(tensor: torch.Tensor, seed: int) -> int:
    """A 64-bit hash of the tensor's span under a seed, which depends on every bit and its position.

    Integer arithmetic modulo 2^64, so CPU and GPU agree. Each word is mixed with its position and the results are
    added: the order of the additions does not matter, the order of the words does. Works in blocks: besides the tensor
    it needs less than 64 MiB.
    """
    return digests([tensor], seed)[0]


def digests(tensors: Sequence[torch.Tensor], seed: int) -> list[int]:
    """`digest` of each. Synchronises once a device."""
    found = [0] * len(tensors)
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        mine = [n for n, tensor in enumerate(tensors) if tensor.device == device]
        told = torch.stack(sums([tensors[n] for n in mine], seed)).tolist()
        for n, total in zip(mine, told, strict=True):
            found[n] = finished(tensors[n], total)
    return found


def sums(tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """For each of one device's tensors, the sum of which `finished` makes its digest: int64, no dimension, not waited
    for.
    """
    spans = [span(tensor) for tensor in tensors]
    counts = [(raw.numel() + 7) // 8 for raw in spans]
    keys = _keys(min(max(counts), _BLOCK_WORDS), seed, spans[0].device) if spans else None
    few, room = [], _BLOCK_WORDS
    for index, count in enumerate(counts):
        if count <= min(_SMALL_WORDS, room):
            few.append(index)
            room -= count
    together = dict(zip(few, _totals([spans[n] for n in few], keys, seed), strict=True)) if len(few) > 1 else {}
    return [together[n] if n in together else _total(raw, keys, seed) for n, raw in enumerate(spans)]


def finished(tensor: torch.Tensor, total: int) -> int:
    """The digest, from its sum."""
    return _mix_int((int(total) & _MASK) ^ _mix_int(span(tensor).numel()))


def _total(raw: torch.Tensor, keys: torch.Tensor, seed: int) -> torch.Tensor:
    """The sum of the mixed words, on the device."""
    total = torch.zeros((), dtype=torch.int64, device=raw.device)
    for block, start in enumerate(range(0, raw.numel(), 8 * _BLOCK_WORDS)):
        words = _words(raw[start : start + 8 * _BLOCK_WORDS])
        mixed = words ^ keys[: words.numel()]
        mixed += _signed(_mix_int(seed + (block + 1) * _GOLDEN))
        total += _mix(mixed).sum()
    return total


def _totals(raws: Sequence[torch.Tensor], keys: torch.Tensor, seed: int) -> Sequence[torch.Tensor]:
    """`_total` of several small tensors, which are mixed together, as one alone takes twenty calls of torch."""
    words = [_words(raw) for raw in raws]
    mixed = torch.cat(words) ^ torch.cat([keys[: one.numel()] for one in words])
    mixed += _signed(_mix_int(seed + _GOLDEN))
    return [part.sum() for part in _mix(mixed).split([one.numel() for one in words])]


def _words(raw: torch.Tensor) -> torch.Tensor:
    """Bytes as int64, padded with zeros; a copy where they are not aligned."""
    short = -raw.numel() % 8
    if short:
        raw = torch.cat([raw, raw.new_zeros(short)])
    elif raw.data_ptr() % 8 or raw.storage_offset() % 8:
        raw = raw.clone()
    return raw.view(torch.int64)


def _keys(count: int, seed: int, device: torch.device) -> torch.Tensor:
    """One pseudo-random word for each position of a block."""
    keys = torch.arange(count, dtype=torch.int64, device=device)
    keys *= _signed(_GOLDEN)
    keys += _signed(_mix_int(seed))
    return _mix(keys)


def _mix(words: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser, in place."""
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1), strict=True):
        high = words >> shift
        high &= (1 << (64 - shift)) - 1  # torch shifts int64 arithmetically
        words ^= high
        words *= _signed(multiplier)
    return words


def _mix_int(word: int) -> int:
    """The same on a Python integer."""
    word &= _MASK
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1), strict=True):
        word = ((word ^ (word >> shift)) * multiplier) & _MASK
    return word


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    word &= _MASK
    return word - (1 << 64) if word >> 63 else word
