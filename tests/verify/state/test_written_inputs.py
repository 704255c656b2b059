"""Tasks that write their inputs: what the engine writes for them passes, and what else is written is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hipwright.machine import Machine
from hipwright.tensors import HostTensor
from hipwright.verify.inputs.written import folded_inputs, named_leaves, overlapping, stays
from hipwright.verify.worker.trees import differing
from hipwright.verify.worker.written import WrittenInputs
from tests.verify.written_tasks import HEAD, judged


def state_task(arguments: str, body: str, inputs: str, setup: str = "pass") -> str:
    """A task of a body over named arguments. setup: statements of get_inputs."""
    return (
        f"{HEAD}class Model(nn.Module):\n    def forward(self, {arguments}):\n        {body}\n\n\n"
        f"def get_inputs():\n    {setup}\n    return [{inputs}]\n"
    )


ADAM = state_task(
    "w, g, m, v",
    "m.mul_(0.9).add_(g, alpha=0.1)\n        v.mul_(0.95).addcmul_(g, g, value=0.05)\n"
    "        w.mul_(1 - 3e-5).addcdiv_(m, v.sqrt().add_(1e-8), value=-3e-4)",
    "torch.randn(700), torch.randn(700), torch.randn(700) * 0.1, torch.rand(700)",
)
STATISTICS = state_task(
    "x, mean, variance",
    "return F.batch_norm(x, mean, variance, training=True, momentum=0.1)",
    "torch.randn(32, 24), torch.randn(24), torch.rand(24)",
)
INSTANCES = state_task(
    "x, mean, variance",
    "before = mean + variance\n        F.instance_norm(x * 2, mean, variance, use_input_stats=True, momentum=0.3)\n"
    "        return before, mean * 2, F.instance_norm(x, mean, variance, use_input_stats=True)",
    "torch.randn(3, 4, 5, 6), torch.randn(8)[::2], torch.rand(4)",
)
UPDATES = state_task(
    "x, w, b, mean, variance",
    "return torch.ops.aten._batch_norm_with_update(x, w, b, mean, variance, 0.1, 1e-5)[:3]",
    "torch.randn(5, 4, 6).half(), *(torch.rand(4).half() for _ in range(4))",
)
WINDOW = state_task(
    "state, x, w",
    "state.copy_(torch.cat([state[:, :, 1:], x[:, :, None]], dim=-1))\n        return (state * w).sum(-1)",
    "torch.randn(6, 10, 4), torch.randn(6, 10), torch.randn(10, 4)",
)
HALVES = state_task(
    "k, v, x", "k.copy_(x)\n        return v + x", "kv[0], kv[1], torch.randn(6, 9)", "kv = torch.randn(2, 6, 9)"
)
COLUMNS = state_task(
    "cache, x", "cache.copy_(x)\n        return x * 2.0", "torch.randn(16, 24)[:, 4:20], torch.randn(16, 16)"
)
SAME = state_task("a, b", "a.add_(1.0)\n        return a + b", "x[:4], x[2:6]", "x = torch.randn(6, 5)")
RETURNED = state_task("x", "return x.mul_(2.0).add_(1.0)", "torch.randn(40, 7)")


@pytest.mark.slow
@pytest.mark.parametrize("source", [ADAM, STATISTICS, INSTANCES, UPDATES, WINDOW, HALVES, COLUMNS, RETURNED])
def test_the_engine_writes_into_the_callers_tensors(source: str, made: Machine) -> None:
    found = judged(made, source)
    assert found.passed, (found.status, found.message)


def test_overlapping_inputs_cannot_be_scored(made: Machine) -> None:
    found = judged(made, SAME)
    assert found.status == "unscorable" and found.fault == "task", found.message
    assert "inputs[1]" in found.message


def test_what_shares_storage_with_a_written_input_stays() -> None:
    whole = torch.arange(48.0).reshape(6, 8)
    given, originals = [whole[:, :4], whole[:, 5:]], [whole[:, :4].clone(), whole[:, 5:].clone()]
    inputs = WrittenInputs(given, ["inputs[0]"])
    assert list(inputs.leaves) == ["inputs[0]"] and len(inputs.read()) == 1 and not inputs.protected()
    given[0].mul_(2.0)
    assert differing(*inputs.fixed(originals, beside=True)) == []
    whole[2, 4] = -1.0  # between the two
    assert differing(*inputs.fixed(originals, beside=True)) == [0]
    assert differing(*inputs.fixed(originals, beside=False)) == []
    whole[2, 6] = -1.0  # in the one that is only read
    assert differing(*inputs.fixed(originals, beside=False)) == [1]


def test_an_input_of_its_own_storage_is_protected() -> None:
    inputs = WrittenInputs([torch.ones(3), {"k": torch.ones(4)}], ["inputs[1]['k']"])
    assert [tensor.numel() for tensor in inputs.protected()] == [3]


def test_overlap_is_of_elements_not_of_storage() -> None:
    storage = np.zeros(96, np.uint8)
    even, odd, all_ = (
        HostTensor("float32", (n,), (step,), at, storage) for n, step, at in ((4, 2, 0), (4, 2, 1), (8, 1, 0))
    )
    assert overlapping([even, odd], ["inputs[0]"]) is None
    assert overlapping([even, {"k": all_}], ["inputs[0]"]) == ("inputs[0]", "inputs[1]['k']")
    assert [path for path, _ in named_leaves([even, {"k": all_}])] == ["inputs[0]", "inputs[1]['k']"]
    assert folded_inputs([even], ["inputs[0]"]) == ""
    assert folded_inputs([HostTensor("float32", (4, 3), (1, 0), 0, storage)], ["inputs[0]"]) == "inputs[0]"


def test_an_element_that_keeps_its_value_by_chance_may_change() -> None:
    before = HostTensor.of(np.array([0.0, -0.0, 2.0, np.nan], np.float32))
    after = HostTensor.of(np.array([0.0, 0.0, 2.0, np.nan], np.float32))
    moved = HostTensor.of(np.array([0.0, 0.0, 2.5, np.nan], np.float32))
    assert stays("inputs[0]", (before, after), []).tolist() == [True, False, True, True]
    assert stays("inputs[0]", (before, after), [([before], {"inputs[0]": moved})]).tolist() == [
        True,
        False,
        False,
        True,
    ]
