"""That inputs and parameters keep their bits during a call, not only until its end. Imports torch.

A program that writes to one and restores it later would pass a comparison after the call. A launcher of the cpu target
refuses a kernel's write itself; on a device, a call that has a `LaunchWatch` compares them after each launch. A library
operator's write counts in the tensor's version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hipwright.errors import CandidateError
from hipwright.verify.worker.recorder import LaunchRecorder
from hipwright.verify.worker.trees import difference, tensors_of
from hipwright.verify.worker.written import WrittenInputs

Tensor = Any  # torch.Tensor, untyped here


class LaunchWatch:
    """Compares tensors with what they must hold after each launch of a call, on the device.

    held: (live tensors, originals), two trees of the same form.
    """

    def __init__(self, held: tuple[Any, Any]) -> None:
        self._held = held
        self._flags: list[Tensor] = []

    def look(self) -> None:
        """Enqueues one comparison."""
        _, flags = difference(*self._held)
        self._flags = self.ever(flags)

    def ever(self, flags: Sequence[Tensor]) -> list[Tensor]:
        """Flags on the device: those given, or an earlier comparison's."""
        return [a | b for a, b in zip(flags, self._flags, strict=True)] if self._flags else list(flags)


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
