"""Inputs and parameters keep their bits during a call: a write that a later launch undoes is seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hipwright.errors import CandidateError
from hipwright.program.signature import parse_signatures
from hipwright.verify.worker.recorder import LaunchRecorder
from hipwright.verify.worker.reused_memory import ReusedMemory
from hipwright.verify.worker.trees import difference, numbers, read, refillable
from hipwright.verify.worker.unchanged import GATHERED_BYTES, LaunchWatch, unchanged
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


def many(dtypes: list[torch.dtype]) -> list[torch.Tensor]:
    """Leaves as a network has them: of several types, small and large, not contiguous, complex, empty, tied."""
    leaves = [torch.randn(3 + 2 * n).to(dtype) for n in range(4) for dtype in dtypes]
    large = torch.randn(GATHERED_BYTES // 4 + 1)
    more = [torch.randn(2, 2, dtype=torch.complex64), torch.empty(0), torch.randn(4, 6).t(), leaves[0], large]
    return [*leaves, *more, torch.tensor([0.0, float("nan")]), torch.rand(1).expand(4)]


def test_each_of_many_leaves_is_seen_and_named() -> None:
    live = many([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
    originals = [tensor.clone() for tensor in live]
    for number, tensor in enumerate(live):
        watch = LaunchWatch((live, originals))
        watch.look()
        memory = tensor.data[:1] if tensor.is_contiguous() or 0 in tensor.stride() else tensor.data
        before = memory.clone()
        memory.copy_(~memory if tensor.dtype == torch.bool else memory - 1)
        watch.look()
        memory.copy_(before)
        watch.look()
        alike, flags = difference(live, originals)
        tied = [n for n, other in enumerate(live) if other is tensor]
        assert numbers(alike, read(flags)) == []
        assert numbers(alike, read(watch.ever(flags))) == (tied if tensor.numel() else []), number


def test_a_look_at_a_network_is_a_few_operators() -> None:
    live = [torch.randn(16) for _ in range(1000)]
    watch = LaunchWatch((live, [tensor.clone() for tensor in live]))
    with Operators() as counted:
        watch.look()
    assert counted.count <= 4


class Operators(TorchDispatchMode):
    """Counts the operators that are called."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


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


def test_inputs_that_shared_memory_take_no_values_that_differ() -> None:
    """Written at the same addresses, the second input's values would be the first one's."""
    memory, other = torch.arange(6.0), torch.arange(6.0) + 10
    one, two = memory[:4], memory[2:]
    assert refillable([one, two], [other[:4], other[2:]]) and refillable([one, torch.zeros(4)], [other[:4], other[2:]])
    assert refillable([one, {"a": torch.zeros(0)}, torch.zeros(0)], [two, {"a": torch.zeros(0)}, torch.zeros(0)])
    assert not refillable([one, two], [torch.zeros(4), torch.ones(4)]), "memory of their own"
    assert not refillable([one, two], [other[:4], other[:4]]), "another place in the same memory"
    assert not refillable([one, memory.view(2, 3)], [other[:4], other.view(3, 2).t()]), "other strides"
    assert not refillable([one], [other[:3]])
