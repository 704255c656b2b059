"""That inputs and parameters keep their bits during a call, not only until its end. Imports torch.

A kernel that writes to one and restores it later would pass a comparison after the call. A launcher of the cpu target
refuses such a write itself (`keep_unchanged`). On a device, one call compares them after each launch (`LaunchWatch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hipwright.errors import CandidateError
from hipwright.verify.worker.recorder import LaunchRecorder
from hipwright.verify.worker.trees import tensors_of


@contextmanager
def unchanged(subject: Any, given: Any) -> Iterator[None]:
    """A call inside must not write to `given` or to the subject's parameters, not even to restore them.

    Raises CandidateError(input_mutated): from the launch that writes, where the launcher can tell, and at the end for a
    library operator's write, which counts in the tensor's version.
    """
    tensors = [*tensors_of(given), *tensors_of(subject.params)]
    recorder = getattr(subject, "recorder", None)
    keep = getattr(recorder.inner, "keep_unchanged", None) if isinstance(recorder, LaunchRecorder) else None
    before = [_version(tensor) for tensor in tensors]
    if keep is not None:
        keep(tensors)
    try:
        yield
    finally:
        if keep is not None:
            keep([])
    for number, (tensor, version) in enumerate(zip(tensors, before, strict=True)):
        if _version(tensor) != version:
            raise CandidateError(
                f"an operator of the plan writes to tensor {number} of the inputs and parameters",
                status="input_mutated",
                stage="launch",
            )


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)
