"""The reference's results, and what is reported about the runs."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from hipwright.errors import TaskError
from hipwright.task import open_task
from hipwright.task.host.double_precision import float64
from hipwright.tensors import HostTensor, tensor_leaves


def run(handle, dtype="float64", seed=0, workload="given"):
    return handle.reference(handle.inputs(workload, seed), handle.init_state(seed), dtype=dtype)


def test_float64_is_exact_where_native_rounds(load):
    handle = load("linear_gelu")
    inputs, state = handle.inputs("given", 0), handle.init_state(0)
    exact, native = (handle.reference(inputs, state, dtype=dtype)[0] for dtype in ("float64", "native"))
    z = inputs[0].to_f64() @ state["params"]["fc.weight"].to_f64().T
    wanted = 0.25 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    assert (exact.dtype, native.dtype) == ("float64", "float32")
    assert np.abs(exact.to_f64() - wanted).max() < 1e-14
    assert 0 < np.abs(native.to_f64() - wanted).max() < 1e-5


def test_float64_sees_through_dtypes_named_in_the_code(load):
    handle = load("half_inside")
    inputs, state = handle.inputs("given", 0), handle.init_state(0)
    exact, _, info = handle.reference(inputs, state)
    assert exact.dtype == "float64" and info["reference_dtype"] == "float64"
    y = inputs[0].to_f64() @ state["params"]["weight"].to_f64() + 0.1
    p = np.exp(y - y.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    wanted = (p - p.mean(-1, keepdims=True)) / np.sqrt(p.var(-1, keepdims=True) + 1e-5) + 0.3
    assert np.abs(exact.to_f64() - wanted).max() < 1e-12


def test_no_float64_is_said_not_hidden(load):
    outputs, _, info = run(load("fixed_float"))
    assert info["reference_dtype"] == "native" and outputs.dtype == "float32"


def test_nested_outputs_and_integers_keep_their_types(load):
    handle = load("nested")
    for dtype, real in (("native", "float32"), ("float64", "float64")):
        named, rest = run(handle, dtype)[0]
        assert list(named) == ["sum", "best", "same", "half", "empty"]
        assert named["best"][0].dtype == real and named["best"][1].dtype == "int64"
        assert named["empty"].shape == (0, 3) and rest[:2] == [4, True]
        assert named["half"].dtype == ("float16" if dtype == "native" else "float64")
    inputs = handle.inputs("given", 0)
    assert inputs[1:4] == [True, 3, 0.5] and isinstance(inputs[0], tuple)


def test_strides_survive_both_ways(load):
    handle = load("strides")
    inputs = handle.inputs("given", 0)
    assert [t.stride for t in tensor_leaves(inputs)] == [(1, 10), (1, 0), (20, 2), (3, 1)]
    assert inputs[2].offset == 43 and inputs[3].offset == 1
    for dtype in ("native", "float64"):
        turned, sums, means, view = run(handle, dtype)[0]
        assert turned.shape == (12, 10)
        assert np.allclose(turned.to_f64(), (inputs[0].to_f64() + inputs[1].to_f64()).T, atol=1e-6)
        assert np.allclose(sums.to_f64(), inputs[2].to_f64().sum(1), atol=1e-5)
        assert np.allclose(means.to_f64(), inputs[3].to_f64().mean(1), atol=1e-6)
        assert view.stride == (20, 2) and np.allclose(view.to_f64(), inputs[2].to_f64()[1:], atol=1e-7)


def test_aliases_and_mutation_are_reported(load):
    handle = load("mutates")
    inputs = handle.inputs("given", 0)
    for dtype in ("native", "float64"):
        outputs, buffers, info = handle.reference(inputs, handle.init_state(0), dtype=dtype)
        assert ["output[0]", "inputs[1]"] in info["aliases"] and ["output[2]", "output[0]"] in info["aliases"]
        assert not any(pair[0] == "output[1]" for pair in info["aliases"])
        assert info["mutated_inputs"] == ["inputs[0]"]
        assert buffers["inputs[0]"].to_f64().min() == 1 and inputs[0].to_f64().max() == 0
        assert outputs[1].to_f64().max() == 2
        assert set(buffers) == {"calls", "mean", "inputs[0]"}, "not what forward caches"
        assert buffers["calls"].dtype == "int64" and buffers["calls"].to_f64() == 1
        assert np.allclose(buffers["mean"].to_f64(), 0.1)


def test_running_statistics_come_back(load):
    handle = load("buffers")
    _, native, _ = run(handle, "native")
    _, exact, _ = run(handle, "float64")
    mean = "blocks.0.norm.running_mean"
    assert native[mean].to_f64().any() and np.allclose(native[mean].to_f64(), exact[mean].to_f64(), atol=1e-6)
    assert exact["blocks.0.norm.num_batches_tracked"].to_f64() == 1


def test_calls_leave_no_trace(load):
    handle = load("buffers")
    first, second = run(handle), run(handle)
    assert first[0].storage.tobytes() == second[0].storage.tobytes()
    assert all(first[1][path].bits().tobytes() == second[1][path].bits().tobytes() for path in first[1])


@pytest.mark.parametrize("name, random", [("dropout", True), ("dropout_zero", False), ("linear_gelu", False)])
def test_randomness_is_detected(load, name, random):
    assert run(load(name), "native")[2]["random"] is random


def test_the_outline_lists_operators_and_specs(load):
    handle = load("linear_gelu")
    outline = handle.outline()
    names = [op["op"] for op in outline.ops]
    assert outline.how == "meta" and "aten.mm.default" in names and "aten.gelu.default" in names
    product = outline.ops[names.index("aten.mm.default")]
    assert product["in"][0]["shape"] == [16, 64] and product["out"][0]["dtype"] == "float32"
    inputs, state = handle.inputs("given", 0), handle.init_state(0)
    assert outline.inputs == [inputs[0].spec]
    assert outline.state["params"] == {path: tensor.spec for path, tensor in state["params"].items()}
    assert outline.state["attrs"] == state["attrs"] and outline.state["modules"] == state["modules"]
    outputs = handle.reference(inputs, state, dtype="native")[0]
    assert outline.outputs == tuple(tensor.spec for tensor in tensor_leaves(outputs))


def test_a_forward_that_asks_for_gradients_of_parameters_counts_its_operations(load):
    handle = load("gradients")
    each = 2 * 32 * 8 * 16
    assert handle.operations("given") == 6 * each, "two products forward, four backward"
    assert handle.outline().workload.name == "given"


def test_the_outline_of_a_forward_that_needs_data_is_a_run(load):
    outline = load("fixed_float").outline()
    assert outline.how == "run" and outline.workload.name == "given"
    assert outline.outputs[0].shape == (6, 30)


def test_capture_returns_plain_types(load):
    graph = load("linear_gelu").capture("given")
    assert graph["nodes"]
    assert not any(isinstance(value, HostTensor) for value in graph.values())


def test_values_that_torch_does_not_check_are_checked(load):
    handle = load("ctc")
    for workload in handle.task.workloads:
        classes = workload.specs[0].shape[2]
        given = handle.inputs(workload.name, 3)
        fits = int(given[1].to_f64().max()) < classes
        if fits:
            outputs = handle.reference(given, handle.init_state(0), dtype="native")[0]
            assert np.isfinite(outputs.to_f64()).all()
        else:
            with pytest.raises(TaskError, match=r"ctc_loss: a target of 5 is out of range: at most 4"):
                handle.reference(given, handle.init_state(0), dtype="native")
    given = handle.inputs("given", 0)
    for place, size, what in ((2, 21, "an input length of 21"), (3, 6, "a target length of 6")):
        wrong = [*given]
        wrong[place] = HostTensor.of(np.full(4, size))
        with pytest.raises(TaskError, match=what):
            handle.reference(wrong, handle.init_state(0))


OUTSIDE = {
    "torch.segment_reduce(x, 'sum', lengths=torch.tensor([3, 4]), unsafe=True)": "lengths of up to 7 are out of range",
    "torch.segment_reduce(x, 'max', offsets=torch.tensor([0, 9]))": "offsets of up to 9 are out of range",
    "torch.ops.aten.segment_reduce(x, 'sum', offsets=torch.tensor([-1, 5]))": "out of range: 6 elements",
    "x[:1].expand(6, 4).median(0)": "along an expanded dimension",
    "torch.nanmedian(x[:, :1].expand(6, 4), -1)": "along an expanded dimension",
    "torch.ops.aten.max_pool2d_with_indices_backward(x[None, None], x[None, None], [6, 4], [1, 1], [0, 0], [1, 1], "
    "False, torch.full((1, 1, 6, 4), 24))": "index 24 is out of range: 24 elements",
}
INSIDE = [
    "torch.segment_reduce(x, 'sum', lengths=torch.tensor([3, 2]), unsafe=True)",
    "torch.segment_reduce(x, 'max', offsets=torch.tensor([0, 2, 6]))",
    "torch.segment_reduce(x, 'mean', lengths=torch.full((6, 2), 2), axis=1)",
    "x[:1].expand(6, 4).median(1), x[:1].expand(6, 4).median(), x.median(0)",
]


@pytest.mark.parametrize("body", [*OUTSIDE, *INSIDE])
def test_an_operator_that_would_read_outside_is_refused(body, tmp_path, zygote):
    path = tmp_path / "module.py"
    head = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return "
    path.write_text(f"{head}{body}\n\n\ndef get_inputs():\n    return [torch.randn(6, 4)]\n")
    with pytest.raises(TaskError, match=OUTSIDE[body]) if body in OUTSIDE else nullcontext():
        open_task(path, zygote).close()
    x = torch.randn(6, 4)
    with float64(), pytest.raises(ValueError, match=OUTSIDE[body]) if body in OUTSIDE else nullcontext():
        eval(body, {"torch": torch, "x": x})


@pytest.mark.parametrize("call", ["torch.quantile(x, q, dim=0)", "x.nanquantile(q=q, dim=0)"])
def test_a_quantile_outside_of_its_range_is_refused(call, tmp_path, zygote):
    """torch's own check is left out in a mode that sees operators, and on a GPU."""
    path = tmp_path / "module.py"
    body = f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, q):\n        return {call}\n"
    path.write_text(f"{body}\n\ndef get_inputs():\n    return [torch.zeros(1, 4), torch.tensor([0.0, 1.0])]\n")
    with open_task(path, zygote) as handle:
        x, state = HostTensor.of(np.zeros((1, 4), np.float32)), handle.init_state(0)
        for dtype in ("float64", "native"):
            handle.reference([x, HostTensor.of(np.array([0.0, 1.0], np.float32))], state, dtype=dtype)
            for wrong in (1.5, -1e-30, np.nan, np.inf):
                with pytest.raises(TaskError, match=r"quantile is outside of \[0, 1\]"):
                    handle.reference([x, HostTensor.of(np.array([0.0, wrong], np.float32))], state, dtype=dtype)
