"""That inputs and parameters keep their bits during a call, not only until its end. Imports torch.

A program that writes to one and restores it later would pass a comparison after the call. A launcher of the cpu target
refuses a kernel's write itself; on a device, a call that has a `LaunchWatch` compares them after each launch. A library
operator's write counts in the tensor's version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hipwright.errors import CandidateError
from hipwright.verify.worker.recorder import LaunchRecorder
from hipwright.verify.worker.trees import bits, tensors_of
from hipwright.verify.worker.written import WrittenInputs

Tensor = Any  # torch.Tensor, untyped here
GATHERED_BYTES = 4 << 20
"""Of a tensor that is compared with others at once: reading a larger one takes longer than its comparison's launch."""


class LaunchWatch:
    """Compares tensors with what they must hold after each launch of a call, on the device.

    held: (live tensors, originals), two trees of the same form. A network has a thousand small tensors and as many
    launches, so the small ones are gathered by a few operators and compared together: a look costs what reading them
    costs, not a comparison for each.
    """

    def __init__(self, held: tuple[Any, Any]) -> None:
        live, originals = (tensors_of(tree) for tree in held)
        alike = [number for number, pair in enumerate(zip(live, originals, strict=True)) if _alike(*pair)]
        pairs = [(bits(live[number]), bits(originals[number])) for number in alike]
        groups: dict[tuple[Any, Any], list[int]] = {}
        for place, (tensor, original) in enumerate(pairs):
            if tensor.is_contiguous() and original.is_contiguous() and tensor.nbytes <= GATHERED_BYTES:
                groups.setdefault((tensor.dtype, tensor.device), []).append(place)
        gathered = [_Gathered(places, [pairs[place] for place in places]) for places in groups.values()]
        self._gathered = [group for group in gathered if group.count > 1]
        taken = {place for group in self._gathered for place in group.places}
        self._single = [place for place in range(len(pairs)) if place not in taken]
        self._pairs = pairs
        self._flags: Tensor = None  # of the single ones, ever

    def look(self) -> None:
        """Enqueues one comparison."""
        for group in self._gathered:
            group.look()
        if self._single:
            flags = torch.stack([(a != b).any() for a, b in map(self._pairs.__getitem__, self._single)])
            self._flags = flags if self._flags is None else self._flags | flags

    def ever(self, flags: Sequence[Tensor]) -> list[Tensor]:
        """Flags on the device, one for each tensor that has the original's form: those given, or an earlier look's."""
        found = list(flags)
        if self._flags is not None:
            for place, flag in zip(self._single, self._flags.unbind(), strict=True):
                found[place] = found[place] | flag
        for group in self._gathered:
            for place, flag in zip(group.places, group.flags(), strict=True):
                found[place] = found[place] | flag
        return found


class _Gathered:
    """Small tensors of one type on one device that are compared together. places: their numbers."""

    def __init__(self, places: Sequence[int], pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.places, self.count = places, len(places)
        self._live = [tensor.view(-1) for tensor, _ in pairs]
        self._sizes = [tensor.numel() for tensor in self._live]
        self._wanted = torch.cat([original.view(-1) for _, original in pairs])
        self._now = torch.empty_like(self._wanted)
        self._parts = list(self._now.split(self._sizes))
        self._changed = torch.zeros_like(self._wanted, dtype=torch.bool)

    def look(self) -> None:
        """Enqueues one comparison of all."""
        torch._foreach_copy_(self._parts, self._live)
        self._changed |= self._now != self._wanted

    def flags(self) -> list[Tensor]:
        """For each tensor, whether any look found another bit."""
        return [part.any() for part in self._changed.split(self._sizes)]


def _alike(live: Tensor, original: Tensor) -> bool:
    return bool(live.shape == original.shape and live.dtype == original.dtype and live.device == original.device)


@contextmanager
def unchanged(subject: Any, inputs: WrittenInputs, watch: LaunchWatch | None = None) -> Iterator[None]:
    """A call inside must not write to inputs that the task only reads or to the subject's parameters, not even to
    restore them.

    Raises CandidateError(input_mutated): from the launch that writes, where the launcher can tell, and at the end for a
    library operator's write. watch: looks after each launch.
    """
    params = list(tensors_of(subject.params))
    tensors = [*inputs.read(), *params]
    recorder = getattr(subject, "recorder", None)
    recorder = recorder if isinstance(recorder, LaunchRecorder) else None
    keep = getattr(recorder.inner, "keep_unchanged", None) if recorder else None
    before = [_version(tensor) for tensor in tensors]
    if keep is not None:
        keep([*inputs.protected(), *params])
    elif recorder is not None and watch is not None:
        recorder.after_launch = watch.look
    try:
        yield
    finally:
        if keep is not None:
            keep([])
        if recorder is not None:
            recorder.after_launch = None
    for number, (tensor, version) in enumerate(zip(tensors, before, strict=True)):
        if _version(tensor) != version:
            raise CandidateError(
                f"an operator writes to tensor {number} of the inputs and parameters",
                status="input_mutated",
                stage="launch",
            )


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)
