"""A task's reference on a device, through its host, on device="cpu": the same code as on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hipwright.digest import digest
from hipwright.records import TolerancePolicy
from hipwright.tensors import HostTensor, map_tensors, tensor_leaves
from hipwright.torchio import to_torch
from hipwright.verify.compare import compare
from tests.verify.conftest import Tasks
from tests.verify.gpu.reference_tools import STRICT, gathered, specs, specs_of, stream


def test_inputs_are_the_files_own_and_arrive_in_chunks(open_on_cpu) -> None:
    handle, reference = open_on_cpu("softmax")
    source = reference.inputs("given", 11)
    (tensor,) = gathered(source)
    (expected,) = tensor_leaves(handle.inputs("given", 11))
    assert torch.equal(tensor, to_torch(expected))
    assert source.digests() == (digest(tensor, 11),)
    assert specs_of(source) == [expected.spec]
    other = gathered(source.slot(1))[0]
    assert other.shape == tensor.shape and not torch.equal(other, tensor)
    assert source.slot(1).digests() != source.digests()


def test_strides_and_gaps_survive_the_chunks(open_on_cpu) -> None:
    handle, reference = open_on_cpu("strided_input")
    source = reference.inputs("given", 3)
    for tensor, expected in zip(gathered(source), tensor_leaves(handle.inputs("given", 3)), strict=True):
        assert tensor.stride() == expected.stride
        assert torch.equal(tensor, to_torch(expected))


def test_derived_shapes_are_drawn_as_the_task_host_draws_them(open_on_cpu) -> None:
    handle, reference = open_on_cpu("linear")
    derived = next(w for w in handle.task.workloads if w.origin == "derived")
    for tensor, expected in zip(
        gathered(reference.inputs(derived.name, 5)), tensor_leaves(handle.inputs(derived.name, 5)), strict=True
    ):
        assert torch.equal(tensor, to_torch(expected))


def test_families_are_signed_and_keep_to_the_domain(open_on_cpu) -> None:
    _, reference = open_on_cpu("softmax")
    normal = gathered(reference.inputs("given", 1, "normal"))[0].double()
    assert abs(float(normal.mean())) < 0.1 and float(normal.std()) == pytest.approx(1.0, abs=0.1)
    outliers = gathered(reference.inputs("given", 1, "outliers"))[0]
    assert 20 <= float(outliers.abs().max()) <= 100
    # drawn again with equal values
    assert torch.equal(gathered(reference.inputs("given", 1, "normal"))[0], normal.float())
    _, both = open_on_cpu("both_positive")
    log = open_on_cpu("log_signed")[1]
    for restricted in (both, log):
        values = gathered(restricted.inputs("given", 1, "normal"))
        assert all(t.isfinite().all() for t in values if t.is_floating_point())


def test_integers_stay_the_files_own(open_on_cpu) -> None:
    handle, reference = open_on_cpu("embedding")
    drawn = gathered(reference.inputs("given", 4, "normal"))
    given = [to_torch(t) for t in tensor_leaves(handle.inputs("given", 4))]
    assert all(torch.equal(a, b) for a, b in zip(drawn, given, strict=True) if not a.is_floating_point())


SHOWN = ["softmax", "layer_norm", "linear", "row_max", "int_sum", "nested_outputs", "batch_norm", "embedding"]
SHOWN += ["transpose", "ema", "half_residual", "bfloat_gelu", "strided_input", "cumsum"]


@pytest.mark.matrix(keep=9)
@pytest.mark.parametrize("name", SHOWN)
def test_verdicts_are_the_oracles(open_on_cpu, tasks: Tasks, name: str) -> None:
    """On the same inputs and state: the baseline passes, one wrong element does not, with the oracle's message."""
    handle, reference = open_on_cpu(name)
    seed, state = 17, handle.init_state(3)
    inputs = handle.inputs("given", seed)
    expected = tasks.oracle(name)._expectations.of(inputs, state)
    info = reference.expect("given", seed, state, STRICT)
    outputs, after, reply = handle.reference(inputs, state, dtype="native")
    got = {"outputs": outputs, "buffers": after}
    assert info.aliases == frozenset((str(a), str(b)) for a, b in reply["aliases"])
    assert info.reference == expected.reference_dtype == "float64"
    assert info.moved and not info.random and not info.mutated and not info.notes
    assert reference.compare(info, specs(got), stream(got)).ok
    first = to_torch(tensor_leaves(outputs)[0])
    index = tuple(n // 2 for n in first.shape)
    first[index] = first[index] * 2 + 3 if first.dtype != torch.bool else ~first[index]
    ours, theirs = reference.compare(info, specs(got), stream(got)), compare(got, expected)
    assert (ours.status, ours.where, ours.wrong, ours.path) == (theirs.status, theirs.where, theirs.wrong, theirs.path)
    assert ours.status == "wrong_value" and ours.where == index
    # the nudge is drawn by another generator, so budgets are near, not equal
    assert ours.message.split(" is ")[0] == theirs.message.split(" is ")[0]
    if np.isfinite(theirs.worst_error):
        assert ours.worst_error == pytest.approx(theirs.worst_error, rel=0.5)


def test_kernelbench_mode_is_allclose_with_the_baseline(open_on_cpu) -> None:
    handle, reference = open_on_cpu("softmax")
    state = handle.init_state(3)
    info = reference.expect("given", 17, state, TolerancePolicy(mode="kernelbench"))
    outputs, after, _ = handle.reference(handle.inputs("given", 17), state, dtype="native")
    got = {"outputs": outputs, "buffers": after}
    tensor = to_torch(tensor_leaves(outputs)[0])
    tensor[0, 0] += 0.9e-4
    assert reference.compare(info, specs(got), stream(got)).ok
    tensor[0, 0] += 0.3e-4
    assert not reference.compare(info, specs(got), stream(got)).ok


def test_wrong_structure_is_told_before_any_value(open_on_cpu) -> None:
    handle, reference = open_on_cpu("nested_outputs")
    state = handle.init_state(0)
    info = reference.expect("given", 1, state, STRICT)
    outputs, after, _ = handle.reference(handle.inputs("given", 1), state, dtype="native")

    def nothing():
        raise AssertionError("the stream is read")
        yield

    for wrong in ([], {"x": 1}, tensor_leaves(outputs)[0], map_tensors(outputs, lambda t: t if False else _as_half(t))):
        got = {"outputs": wrong, "buffers": after}
        ours = reference.compare(info, specs(got), nothing())
        assert ours.status == "bad_output_spec" and ours.path.startswith("output")


def _as_half(tensor: HostTensor) -> HostTensor:
    return HostTensor.of(np.zeros(tensor.shape), "float16")


def test_dicts_in_another_order_are_paired_by_key(open_on_cpu, tmp_path: Path) -> None:
    path = tmp_path / "named.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return {'up': x + 1, 'down': x[:3] - 1}\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    handle, reference = open_on_cpu(path)
    state = handle.init_state(0)
    info = reference.expect("given", 1, state, STRICT)
    outputs, _, _ = handle.reference(handle.inputs("given", 1), state, dtype="native")
    got = {"outputs": {"down": outputs["down"], "up": outputs["up"]}, "buffers": {}}
    assert reference.compare(info, specs(got), stream(got)).ok
    to_torch(outputs["down"])[1] += 1
    found = reference.compare(info, specs(got), stream(got))
    assert found.path == "output['down']" and found.where == (1,)


def test_what_proves_nothing_is_told(open_on_cpu, tmp_path: Path) -> None:
    def info_of(name: str, body: str, inputs: str = "torch.rand(64)"):
        path = tmp_path / f"{name}.py"
        path.write_text(
            f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
            f"def get_inputs():\n    return [{inputs}]\n"
        )
        handle, reference = open_on_cpu(path)
        return reference.expect("given", 1, handle.init_state(0), STRICT)

    assert info_of("zeros", "return x * 0").degenerate == "zeros would pass"
    assert info_of("constant", "return x * 0 + 2").degenerate == "a constant would pass"
    assert info_of("identity", "return torch.relu(x)").degenerate == "an input handed back would pass"
    assert info_of("blank", "return x[:0]").degenerate == "every output is empty"
    assert (
        info_of("same", "return x.numel() + torch.arange(7.0)").degenerate == "the outputs for other inputs would pass"
    )
    assert info_of("good", "return torch.exp(x)").degenerate == ""
    assert info_of("random", "return x + torch.rand_like(x)").random
    assert info_of("writes", "return x.mul_(2)").mutated == ("inputs[0]",)


def test_a_family_the_reference_cannot_take_is_rejected_not_an_error(open_on_cpu, tmp_path: Path) -> None:
    path = tmp_path / "picky.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        if float(x.abs().max()) > 15: raise ValueError('too large')\n        return x.exp()\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    handle, reference = open_on_cpu(path)
    state = handle.init_state(0)
    assert "too large" in reference.expect("given", 1, state, STRICT, family="outliers").rejected
    assert reference.expect("given", 1, state, STRICT, family="normal").counts


@pytest.mark.parametrize(("task", "writes"), [("ema", True), ("batch_norm_eval", False), ("softmax", False)])
def test_whether_forward_writes_to_buffers(open_on_cpu, task: str, writes: bool) -> None:
    handle, reference = open_on_cpu(task)
    expected = reference.expect("given", 3, handle.init_state(3), handle.task.tolerance)
    assert expected.writes_state is writes
