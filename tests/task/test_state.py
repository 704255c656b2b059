"""The state table: what a program's `self.…` refers to."""

import numpy as np
import pytest

from hipwright.errors import TaskError
from hipwright.tensors import HostTensor


def test_parameters_and_attributes(load):
    state = load("linear_gelu").init_state(0)
    assert state["params"]["fc.weight"].shape == (32, 64) and "fc.bias" not in state["params"]
    attrs = state["attrs"]
    assert attrs["fc.bias"] is None and attrs["fc.in_features"] == 64 and attrs["hidden"] == 32
    assert attrs["mode"] == "tanh" and attrs["dims"] == (1, 2) and attrs["SCALE"] == 0.5 and attrs["kind"] == "float16"
    assert state["modules"]["fc"] == {"class": "Linear", "len": -1, "children": []}
    assert state["modules"][""]["children"] == ["fc"] and state["training"] is True


def test_ties_buffers_and_lists(load):
    state = load("buffers").init_state(0)
    params, buffers = state["params"], state["buffers"]
    assert params["second.weight"].storage is params["first.weight"].storage
    assert buffers["blocks.0.mask"].shape == (8,), "non-persistent"
    assert buffers["table"].to_f64().tolist() == list(range(8)), "a plain tensor attribute"
    assert buffers["blocks.1.norm.num_batches_tracked"].dtype == "int64"
    assert state["modules"]["blocks"] == {"class": "ModuleList", "len": 2, "children": ["0", "1"]}
    assert state["modules"]["blocks.0"]["children"] == ["norm"]


def test_plain_objects_and_modes(load):
    state = load("attributes").init_state(0)
    attrs = state["attrs"]
    assert attrs["config.heads"] == 4 and attrs["eps"] == 1e-5 and attrs["nothing"] is None
    assert attrs["options.scale"] == 0.5 and attrs["options.chunks"] == (2, 3)
    assert not any(name.startswith("kind") for name in attrs)
    assert attrs["shape"] == (3, (4, 5)) and "fn" not in attrs
    assert attrs["stack.0.stride"] == (2, 2) and attrs["stack.0.padding"] == (0, 0)
    assert state["modules"]["stack"]["len"] == 2 and state["training"] is False and attrs["training"] is False


def test_seeds_decide(load):
    handle = load("linear_gelu")
    bits = [handle.init_state(seed)["params"]["fc.weight"].storage.tobytes() for seed in (0, 0, 1)]
    assert bits[0] == bits[1] != bits[2]
    drawn = [handle.inputs("given", seed)[0].storage.tobytes() for seed in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_reference_uses_the_state_it_is_given(load):
    handle = load("linear_gelu")
    inputs, state = handle.inputs("given", 0), handle.init_state(0)
    weight = state["params"]["fc.weight"]
    double = {**state, "params": {"fc.weight": HostTensor.from_f64(weight.to_f64() * 0, weight)}}
    assert handle.reference(inputs, state)[0].to_f64().any()
    assert not handle.reference(inputs, double)[0].to_f64().any()
    wrong = {**state, "params": {"fc.weight": HostTensor.of(np.zeros((3, 3), np.float32))}}
    with pytest.raises(TaskError, match=r"self\.fc\.weight"):
        handle.reference(inputs, wrong)


def test_tied_weights_follow_the_table(load):
    handle = load("buffers")
    inputs, state = handle.inputs("given", 0), handle.init_state(3)
    outputs = handle.reference(inputs, state)[0].to_f64()
    params = {path: tensor.to_f64() for path, tensor in state["params"].items()}
    x = inputs[0].to_f64()
    y = (x @ params["first.weight"].T + params["first.bias"]) @ params["second.weight"].T + params["second.bias"]
    y = y + np.arange(8.0) + x @ params["first.weight"].T.T.T
    for _ in range(2):
        y = (y - y.mean(0)) / np.sqrt(y.var(0) + 1e-5)
    assert np.allclose(outputs, y, atol=1e-12)
