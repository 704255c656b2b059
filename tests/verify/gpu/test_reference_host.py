"""A device reference's host process: its memory, its baselines and its failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from hipwright.errors import TaskError
from hipwright.evaluation.gpu.baselines import open_baselines
from hipwright.sandbox import Zygote
from hipwright.torchio import to_torch
from hipwright.verify.gpu.hosts.device_process import Crowded
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.reference_handles import BaselineMissing
from tests.verify.conftest import Tasks
from tests.verify.gpu.reference_tools import STRICT, specs, stream

ROWS = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    "def get_inputs():\n    return [torch.randn(512, 256)]\n"
)
INPUT_BYTES = 512 * 256 * 4


@pytest.mark.matrix(keep=4)
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
    reference.crowded = lambda: True
    with pytest.raises(Crowded) if reference_dtype == "native" else nullcontext():  # others may hold the memory
        reference.expect("given", 5, state, STRICT)
    reference.crowded = lambda: False
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


@pytest.mark.parametrize("spare", [0, INPUT_BYTES * 64])
def test_beside_other_tasks_a_reference_asks_for_spare_memory(
    reference_zygote: Zygote, tasks: Tasks, tmp_path: Path, spare: int
) -> None:
    """Where rows depend on each other, float64 runs in spare memory; without it, the task is tried again alone."""
    path = tmp_path / "mixing.py"
    path.write_text(ROWS.format("torch.softmax(x, 0)"))
    handle, asked, share = tasks.handle(path), [], INPUT_BYTES * 8

    @contextmanager
    def lent(wanted: int) -> Iterator[int]:
        asked.append(wanted)
        yield min(spare, wanted)

    with open_reference(handle, reference_zygote, "cpu", share=lambda: share) as reference:
        reference.spare, reference.crowded = lent, lambda: True
        state = handle.init_state(0)
        with nullcontext() if spare else pytest.raises(Crowded):
            assert reference.expect("given", 5, state, STRICT).reference == "float64"
        assert len(asked) == 1 and asked[0] > INPUT_BYTES


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
        "import torch\ndef refuse(*a, **k): raise RuntimeError('not this one')\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
        "def get_inputs():\n    torch.compile = refuse\n    return [torch.randn(64)]\n"
    )
    handle, reference = open_on_cpu(path)
    state = handle.init_state(0)
    with pytest.raises(BaselineMissing, match=r"no compile baseline: .*not this one"):
        reference.side("compile", "given", state=state, seed=1)
    assert reference.side("eager", "given", state=state, seed=1).prepare(1).call_ms > 0


def test_a_baseline_that_takes_too_long_to_compile_is_left_out(open_on_cpu, tmp_path: Path) -> None:
    """The others are opened again in a new host, and the one that took too long is not tried once more."""
    path = tmp_path / "long.py"
    path.write_text(
        "import time, torch\ndef slow(*a, **k): time.sleep(600)\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
        "def get_inputs():\n    torch.compile = slow\n    return [torch.randn(64)]\n"
    )
    handle, reference = open_on_cpu(path)
    reference.compile_s = 1.5
    state, generation = handle.init_state(0), reference.generation
    found = open_baselines(reference, "given", state, 1, 2)
    assert found.missing == {"compile": "torch.compile gives none within 1.5 s, the limit of this run"}
    assert [side.name for side in found.sides] == ["eager"]
    assert found.sides[0].prepare(2).call_ms > 0 and reference.generation == generation + 1
    with pytest.raises(BaselineMissing, match=r"no compile baseline: torch.compile gives none within 1.5 s"):
        reference.side("compile", "given", state=state, seed=2)
    assert found.sides[0].block(2).calls == 2


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


def test_broken_tasks_name_their_line(reference_zygote: Zygote, tasks: Tasks, tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        if x.sum() == 0: return x\n        raise ValueError('never')\n"
        "def get_inputs():\n    return [torch.zeros(4) if torch.initial_seed() == 0 else torch.ones(4)]\n"
    )
    handle = tasks.handle(path)
    with (
        open_reference(handle, reference_zygote, "cpu") as reference,
        pytest.raises(TaskError, match=r"raises.py:5: forward raises ValueError: never"),
    ):
        reference.expect("given", 3, handle.init_state(0), STRICT)


def test_ceilings_are_positive_numbers(open_on_cpu) -> None:
    _, reference = open_on_cpu("softmax")
    reply = reference.measure_ceilings()
    assert min(reply["copy"], reply["read"], reply["write"], *reply["flops"].values()) > 1e6
    assert {"float32", "float64"} <= set(reply["flops"])


def test_expectations_make_room_for_one_another_and_are_made_again(open_on_cpu, tmp_path: Path) -> None:
    path = tmp_path / "tight.py"
    path.write_text(ROWS.format("torch.softmax(x, 1)"))
    # on the CPU allocations are not counted: everything is freed
    handle, reference = open_on_cpu(path, INPUT_BYTES * 4)
    state = handle.init_state(0)
    first = reference.expect("given", 1, state, STRICT)
    second = reference.expect("given", 2, state, STRICT)
    for info, seed in ((first, 1), (second, 2), (first, 1)):
        outputs, _, _ = handle.reference(handle.inputs("given", seed), state, dtype="native")
        got = {"outputs": outputs, "buffers": {}}
        assert reference.compare(info, specs(got), stream(got)).ok
        to_torch(outputs)[300, 200] *= 1.01
        assert reference.compare(info, specs(got), stream(got)).where == (300, 200)
