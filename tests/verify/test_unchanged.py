"""Inputs and parameters keep their bits during a call: a write that a later launch undoes is seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hipwright.errors import CandidateError
from hipwright.program.signature import parse_signatures
from hipwright.verify.worker.recorder import LaunchRecorder
from hipwright.verify.worker.reused_memory import ReusedMemory
from hipwright.verify.worker.trees import difference, numbers, read
from hipwright.verify.worker.unchanged import LaunchWatch, unchanged
from hipwright.verify.worker.written import WrittenInputs

SIGNATURES = parse_signatures(
    'extern "C" __global__ void negate(float* x) {} extern "C" __global__ void look(const float* x) {}'
).signatures


class Device:
    """A launcher whose kernels are Python, and write as a kernel does: without a new version of the tensor."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []

    def empty(self, shape: Any, dtype: Any) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Any) -> None:
        if kernel == "negate":
            args[0].data.neg_()
        self.launches.append({"kernel": kernel})


def changed(*kernels: str, on: str = "input") -> list[int]:
    """Leaves that the launches changed at any time; 0 is the input, 1 the parameter."""
    given, weight = [torch.randn(5)], {"w": torch.randn(3)}
    held = [given, weight], [[given[0].clone()], {"w": weight["w"].clone()}]
    device = Device()
    subject = SimpleNamespace(recorder=LaunchRecorder(device, ReusedMemory(device.empty), SIGNATURES), params=weight)
    watch = LaunchWatch(held)
    with unchanged(subject, WrittenInputs(given, ()), watch):
        for kernel in kernels:
            subject.recorder.launch(kernel, 1, 1, 0, [given[0] if on == "input" else weight["w"]])
    alike, flags = difference(*held)
    return numbers(alike, read(watch.ever(flags)))


@pytest.mark.parametrize("on", ["input", "parameter"])
def test_a_write_that_is_undone_is_seen(on: str) -> None:
    leaf = 0 if on == "input" else 1
    assert changed("look", "negate", "negate", on=on) == [leaf]
    assert changed("negate", "look", "look", on=on) == [leaf]
    assert changed("look", "look", on=on) == []
    assert changed(on=on) == []


def test_an_operator_that_writes_and_restores_is_refused() -> None:
    given, params = [torch.randn(5)], {"w": torch.randn(3)}
    subject = SimpleNamespace(params=params)
    for tensor in (given[0], params["w"], given[0][1:]):
        with pytest.raises(CandidateError) as caught, unchanged(subject, WrittenInputs(given, ())):
            tensor.add_(1).sub_(1)
        assert caught.value.status == "input_mutated"
    with unchanged(subject, WrittenInputs(given, [])):
        (given[0] + 1).add_(params["w"].sum())


def test_an_input_that_the_task_writes_may_be_written() -> None:
    given = [torch.randn(5), torch.randn(5)]
    subject = SimpleNamespace(params={})
    with unchanged(subject, WrittenInputs(given, ["inputs[0]"])):
        given[0].add_(1)
    with pytest.raises(CandidateError), unchanged(subject, WrittenInputs(given, ["inputs[0]"])):
        given[1].add_(1)
