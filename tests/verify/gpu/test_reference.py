"""A task's reference on a device, through its host, on device="cpu": the same code as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from hipwright.digest import digest, span
from hipwright.errors import TaskError
from hipwright.records import TensorSpec, TolerancePolicy
from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle
from hipwright.tensors import HostTensor, Tree, leaves, map_tensors, tensor_leaves
from hipwright.torchio import to_torch
from hipwright.verify.compare import compare
from hipwright.verify.gpu.reference import DeviceReference, open_reference
from hipwright.verify.gpu.reference_handles import BaselineMissing
from hipwright.verify.gpu.shared_hosts import SharedHosts
from tests.verify.conftest import TASKS, Tasks

STRICT = TolerancePolicy()
DATA = Path(__file__).parents[2] / "task" / "data"


@pytest.fixture(scope="module", params=["a host each", "shared hosts"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote | SharedHosts]:
    with Zygote(("torch", "hipwright.task.device.server"), name="reference host") as it, SharedHosts(it, 2) as shared:
        yield it if request.param == "a host each" else shared


@pytest.fixture(scope="module")
def open_on_cpu(zygote: Zygote, tasks: Tasks) -> Iterator[object]:
    """open_on_cpu("softmax") -> (handle, reference), opened once."""
    opened: dict[Path, tuple[TaskHandle, DeviceReference]] = {}

    def get(name: str | Path, limit: int = 0) -> tuple[TaskHandle, DeviceReference]:
        path = name if isinstance(name, Path) else TASKS / f"{name}.py"
        if path not in opened:
            handle = tasks.handle(path)
            opened[path] = (handle, open_reference(handle, zygote, "cpu", memory_limit_bytes=limit))
        return opened[path]

    yield get
    for _, reference in opened.values():
        reference.close()


def specs(tree: Tree) -> Tree:
    return map_tensors(tree, lambda t: t.spec)


def stream(tree: Tree, size: int = 4096):
    """What a worker sends: chunks of every leaf's span."""
    for leaf, tensor in enumerate(tensor_leaves(tree)):
        raw = span(to_torch(tensor)).numpy()
        for start in range(0, raw.size, size):
            yield leaf, start, HostTensor.of(raw[start : start + size])


def specs_of(source) -> list[TensorSpec]:
    return [leaf for leaf in leaves(source.arguments) if isinstance(leaf, TensorSpec)]


def gathered(source) -> list[torch.Tensor]:
    """A source's tensors, put together from its chunks as a worker does."""
    raw = [np.zeros(size, np.uint8) for size in source.sizes]
    for leaf, offset, chunk in source.chunks(1 << 12):
        raw[leaf][offset : offset + chunk.numel] = chunk.storage
    found = []
    for spec, data in zip(specs_of(source), raw, strict=True):
        found.append(to_torch(HostTensor(spec.dtype, spec.shape, spec.stride, 0, data)))
    return found


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
    assert torch.equal(gathered(reference.inputs("given", 1, "normal"))[0], normal.float())  # made again alike
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


@pytest.mark.parametrize("name", SHOWN)
def test_verdicts_are_the_oracles(open_on_cpu, tasks: Tasks, name: str) -> None:
    """On the same inputs and state: the baseline passes, one wrong element does not, in the oracle's words."""
    handle, reference = open_on_cpu(name)
    seed, state = 17, handle.init_state(3)
    inputs = handle.inputs("given", seed)
    expected = tasks.oracle(name)._expectations.of(inputs, state)
    info = reference.expect("given", seed, state, STRICT)
    outputs, after, told = handle.reference(inputs, state, dtype="native")
    got = {"outputs": outputs, "buffers": after}
    assert info.aliases == frozenset((str(a), str(b)) for a, b in told["aliases"])
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


# ---------------------------------------------------------------- memory

ROWS = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    "def get_inputs():\n    return [torch.randn(512, 256)]\n"
)
INPUT_BYTES = 512 * 256 * 4


@pytest.mark.parametrize(
    ("name", "formula", "limit", "reference_dtype"),
    [
        ("whole", "torch.softmax(x, 1)", 0, "float64"),
        ("parts", "torch.softmax(x, 1)", INPUT_BYTES * 8, "float64 in"),
        ("mixing", "torch.softmax(x, 0)", INPUT_BYTES * 8, "native"),
        ("centred", "x - x.mean(0)", INPUT_BYTES * 8, "native"),
    ],
)
def test_little_memory_gives_parts_and_then_the_baseline_itself(
    open_on_cpu, tmp_path: Path, name: str, formula: str, limit: int, reference_dtype: str
) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(ROWS.format(formula))
    handle, reference = open_on_cpu(path, limit)
    state = handle.init_state(0)
    before = reference.inputs("given", 5).digests()
    info = reference.expect("given", 5, state, STRICT)
    assert info.reference.startswith(reference_dtype) and info.moved and info.counts
    assert bool(info.notes) == (limit > 0)
    outputs, _, _ = handle.reference(handle.inputs("given", 5), state, dtype="native")
    got = {"outputs": outputs, "buffers": {}}
    assert reference.compare(info, specs(got), stream(got)).ok
    reference._known.clear()
    assert reference.inputs("given", 5).digests() == before  # inputs that were nudged in place are drawn again
    to_torch(outputs)[300, 200] *= 1.01
    assert reference.compare(info, specs(got), stream(got)).where == (300, 200)


def test_parts_and_whole_agree(open_on_cpu, tmp_path: Path) -> None:
    worst = []
    for name, limit in (("all", 0), ("cut", INPUT_BYTES * 8)):
        path = tmp_path / f"{name}.py"
        path.write_text(ROWS.format("torch.nn.functional.gelu(x)"))
        handle, reference = open_on_cpu(path, limit)
        state = handle.init_state(0)
        info = reference.expect("given", 5, state, STRICT)
        outputs, _, _ = handle.reference(handle.inputs("given", 5), state, dtype="native")
        to_torch(outputs)[7, 9] *= 1.001
        got = {"outputs": outputs, "buffers": {}}
        found = reference.compare(info, specs(got), stream(got))
        assert found.where == (7, 9)
        worst.append(found.worst_error)
    assert worst[0] == pytest.approx(worst[1], rel=0.2)


# ---------------------------------------------------------------- baselines and the process


def test_baselines_run_in_turn_over_their_slots(open_on_cpu) -> None:
    handle, reference = open_on_cpu("softmax")
    side = reference.side("eager", "given", state=handle.init_state(0), seed=1, slots=3)
    prepared = side.prepare(5)
    assert prepared.policy == "stream" and prepared.why == "the cpu has no graphs" and prepared.call_ms > 0
    block = side.block(20)
    assert block.calls == 20 and 0 < block.device_ms <= block.host_ms <= block.wall_ms
    assert side.block(0).device_ms < block.device_ms
    assert len(side.latency(4)) == 4 and min(side.latency(3)) > 0
    reference.free("sides")
    with pytest.raises(TaskError, match="KeyError"):
        side.block(1)


def test_a_model_that_does_not_compile_has_no_such_baseline(open_on_cpu, tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "import torch\ndef refuse(*a, **k): raise RuntimeError('not this one')\ntorch.compile = refuse\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    handle, reference = open_on_cpu(path)
    state = handle.init_state(0)
    with pytest.raises(BaselineMissing, match=r"no compile baseline: .*not this one"):
        reference.side("compile", "given", state=state, seed=1)
    assert reference.side("eager", "given", state=state, seed=1).prepare(1).call_ms > 0


def test_a_host_that_dies_is_replaced(open_on_cpu, tmp_path: Path) -> None:
    path = tmp_path / "dies.py"
    path.write_text(
        "import os, torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        if x.numel() == 77: os._exit(9)\n        return x.exp()\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    handle, reference = open_on_cpu(path)
    state = handle.init_state(0)
    info = reference.expect("given", 1, state, STRICT)
    side = reference.side("eager", "given", state=state, seed=1)
    assert reference._session is not None
    reference._session.close()
    assert reference.expect("given", 1, state, STRICT).case != info.case
    with pytest.raises(Exception, match="was replaced"):
        side.block(1)


def test_broken_tasks_name_their_line(zygote: Zygote, tasks: Tasks, tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        if x.sum() == 0: return x\n        raise ValueError('never')\n"
        "def get_inputs():\n    return [torch.zeros(4) if torch.initial_seed() == 0 else torch.ones(4)]\n"
    )
    handle = tasks.handle(path)
    with (
        open_reference(handle, zygote, "cpu") as reference,
        pytest.raises(TaskError, match=r"raises.py:5: forward raises ValueError: never"),
    ):
        reference.expect("given", 3, handle.init_state(0), STRICT)


def test_ceilings_are_positive_numbers(open_on_cpu) -> None:
    _, reference = open_on_cpu("softmax")
    told = reference.measure_ceilings()
    assert min(told["copy"], told["read"], told["write"], *told["flops"].values()) > 1e6
    assert {"float32", "float64"} <= set(told["flops"])


def test_expectations_make_room_for_one_another_and_are_made_again(open_on_cpu, tmp_path: Path) -> None:
    path = tmp_path / "tight.py"
    path.write_text(ROWS.format("torch.softmax(x, 1)"))
    handle, reference = open_on_cpu(path, INPUT_BYTES * 4)  # on the CPU nothing counts what is taken: all is dropped
    state = handle.init_state(0)
    first = reference.expect("given", 1, state, STRICT)
    second = reference.expect("given", 2, state, STRICT)
    for info, seed in ((first, 1), (second, 2), (first, 1)):
        outputs, _, _ = handle.reference(handle.inputs("given", seed), state, dtype="native")
        got = {"outputs": outputs, "buffers": {}}
        assert reference.compare(info, specs(got), stream(got)).ok
        to_torch(outputs)[300, 200] *= 1.01
        assert reference.compare(info, specs(got), stream(got)).where == (300, 200)
