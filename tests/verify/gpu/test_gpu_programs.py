"""verify_gpu with the cpu target's builds (driver "cpu"): the same stages, one process, no GPU.

The faults that a GPU's verification does not detect are listed: accesses are not checked, so a read outside a buffer
shows only by the poison it reads, and a race only where it changes results under the tested orders.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle
from hipwright.tensors import tensor_leaves
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle
from hipwright.verify.atomics import DETERMINISTIC, library_adds_in_any_order
from hipwright.verify.candidate import CallReply
from hipwright.verify.gpu import device_judging
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.device_judging import judge_on_device
from hipwright.verify.gpu.large_shapes import LIBRARY_ORDER
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.worker.deterministic import library_algorithms
from tests.verify.gpu.judged_programs import built, text_of, verdict_of, verdict_when_timed

UNSEEN = ("race_across_blocks",)
HONEST = {
    "row_sum_wave": "row_sum",
    "linear_packed": "linear",
    "batch_norm_columns": "batch_norm",
    "row_max_wave": "row_max",
    "mean_square_atomic": "mean_square",
    "copy_and_sum": "copy_and_sum",
    "half_residual_half2": "half_residual",
}
WRONG = {
    "tail_write": ("scale_bias", "out_of_bounds"),
    "uninitialised": ("softmax", "wrong_value"),
    "lds_limit": ("row_sum", "launch_error"),
    "returns_input": ("copy_and_sum", "bad_output_spec"),
    "writes_input": ("row_sum", "input_mutated"),
    "skips_parameters": ("scale_bias", "wrong_value"),
    "one_pass_variance": ("layer_norm", "wrong_value"),
    "softmax_overflow": ("softmax", "wrong_value"),
    "odd_tail": ("log_signed", "wrong_value"),
    "first_result": ("linear", "wrong_value"),
    "dtype": ("half_residual", "bad_output_spec"),
    "expanded_output": ("row_mean_wide", "bad_output_spec"),
    "stale_statistics": ("batch_norm", "wrong_value"),
    "assumes_contiguous": ("row_sum", "wrong_value"),
    "lds_index": ("row_sum", "out_of_bounds"),
    "missing_barrier": ("row_sum", "wrong_value"),
    "tail_read": ("row_sum", "wrong_value"),
}


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("gate", ["full", "fast"])
@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(name: str, gate: Any, tasks: Any, worker: CandidateWorker) -> None:
    verdict = verdict_of(text_of("honest", name), tasks.oracle(HONEST[name]), worker, gate=gate)
    assert verdict.passed, verdict.message
    assert verdict.worst_error is not None and verdict.worst_error <= 1.0 and len(verdict.workloads) >= 2
    assert verdict.checks["second_call"] == "pass" and verdict.checks["gate"] == gate
    if gate == "full":
        assert verdict.checks["noop_right"] is False and "given" in verdict.workloads


@pytest.mark.parametrize("gate", ["full", "fast"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_are_refused(name: str, gate: Any, tasks: Any, worker: CandidateWorker) -> None:
    task, status = WRONG[name]
    verdict = verdict_of(text_of("wrong", name), tasks.oracle(task), worker, gate=gate)
    assert (verdict.status, verdict.fault) == (status, "candidate"), verdict.message
    assert verdict.evidence["workload"] and verdict.evidence["family"]


@pytest.mark.parametrize("name", UNSEEN)
def test_what_only_checked_accesses_show_is_known(name: str, tasks: Any, worker: CandidateWorker) -> None:
    assert verdict_of(text_of("wrong", name), tasks.oracle("mean_square"), worker).passed


def test_the_decoy_is_told(tasks: Any, worker: CandidateWorker) -> None:
    verdict = verdict_of(text_of("wrong", "decoy"), tasks.oracle("softmax"), worker)
    assert verdict.passed and verdict.checks["noop_right"] is True


def timed_outputs(handle: TaskHandle, reference: Any, worker: CandidateWorker) -> None:
    """The outputs of a timed call for late inputs are compared on the device."""
    _, program, build = built(text_of("honest", "batch_norm_columns"), worker.cache)
    state = handle.init_state(5)
    with worker.load(program, build, state) as loaded:
        loaded.place("timed", reference.inputs("given", 1), 3)
        side = GpuSide(loaded, "timed", graph=True)
        prepared = side.prepare(4)
        assert prepared.policy == "stream" and prepared.why and prepared.own_time is not None
        side.block(7)
        side.reveal(1, reference.inputs("given", 2))
        side.block(3)
        expected = reference.expect("given", 2, state, handle.task.tolerance)
        assert judge_on_device(loaded, side.timed_output(1), reference, expected).ok
        with pytest.raises(Exception, match="expected"):
            judge_on_device(loaded, side.timed_output(0), reference, expected)


def test_own_shapes_too_large_for_the_oracle_are_judged_on_the_device(
    tasks: Any, workers: Zygote, cache: BuildCache
) -> None:
    oracle = tasks.oracle("batch_norm")
    tight = Oracle(oracle.handle, seed=20, full_elements=10)
    with (
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        open_reference(oracle.handle, hosts, "cpu") as reference,
        CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker,
    ):
        verdict = verdict_of(text_of("honest", "batch_norm_columns"), tight, worker, reference=reference)
        assert verdict.passed, verdict.message
        assert "given" in verdict.workloads and "given" not in verdict.skipped
        assert set(verdict.checks["large"]) == {"given/given", "given/normal"} and verdict.checks["shapes"]["given"]
        # correct at every shape but the task's own, by arithmetic in which no comparison shows
        text = text_of("honest", "batch_norm_columns")
        worse = text.replace("y[i * c + j] = (x", "y[i * c + j] = 1e-3f * ((n / 64) * (64 / n)) + (x")
        assert worse != text
        refused = verdict_of(worse, tight, worker, reference=reference)
        assert refused.status == "wrong_value" and refused.workload == "given", refused.message
        timed_outputs(oracle.handle, reference, worker)


def test_a_program_for_its_own_large_shape_alone_is_judged_on_the_device(
    tasks: Any, workers: Zygote, cache: BuildCache
) -> None:
    handle = tasks.oracle("row_sum").handle
    tight = Oracle(handle, seed=20, full_elements=10)
    text = text_of("honest", "row_sum_wave")
    text = text.replace(
        "    x = x.contiguous()\n", "    assert x.shape[0] == 33 and x.shape[1] == 300\n    x = x.contiguous()\n"
    )
    with (
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        open_reference(handle, hosts, "cpu") as reference,
        CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker,
    ):
        verdict = verdict_of(text, tight, worker, reference=reference)
        assert verdict.passed and verdict.workloads == ("given",), verdict.message
        assert verdict.checks["repeats"] == "bit-equal" and verdict.checks["second_call"] == "pass"
        assert verdict.checks["noop_right"] is False and "given" not in verdict.skipped
        for status, old, new in (
            ("wrong_value", "y[wave] = acc", "y[wave] = wave == 32 ? 0.0f : acc"),
            ("nondeterministic", "y[wave] = acc", "y[wave] = acc + (__float_as_int(y[wave]) & 1) * 1e-6f"),
        ):
            assert old in text
            verdict = verdict_of(text.replace(old, new), tight, worker, reference=reference)
            assert (verdict.status, verdict.workload) == (status, "given"), verdict.message
        assert verdict_of(text, tight, worker).status == "unscorable", "nobody can judge it"
        elsewhere = verdict_of(text.replace("== 33", "== 34"), tight, worker, reference=reference)
        assert elsewhere.status == "launch_error" and "an assert refuses it" in elsewhere.message
        for status, old, new in (
            ("pass", "", ""),
            ("wrong_value", "y[wave] = acc", "y[wave] = wave == 32 ? 0.0f : acc"),
            ("launch_error", "== 33", "== 34"),
            ("input_mutated", "y[wave] = acc", "y[wave] = const_cast<float*>(x)[wave] = acc"),
        ):
            assert old in text
            verdict = verdict_when_timed(text.replace(old, new, 1), tight, reference, worker)
            assert (verdict.status, verdict.workload if old else "given") == (status, "given"), verdict.message
            assert not verdict.passed or (verdict.workloads == ("given",) and "given" not in verdict.skipped)


@pytest.mark.parametrize("gate", ["full", "fast"])
def test_a_program_for_one_size_is_verified_at_shapes_that_keep_it(
    gate: Any, tasks: Any, worker: CandidateWorker
) -> None:
    tight = Oracle(tasks.oracle("row_sum").handle, seed=20, full_elements=10)
    text = text_of("honest", "row_sum_wave")
    narrow = text.replace("    x = x.contiguous()\n", "    assert x.shape[1] == 300\n    x = x.contiguous()\n")
    verdict = verdict_of(narrow, tight, worker, gate=gate)
    assert verdict.passed and len(verdict.workloads) >= 3, verdict.message
    assert all(name.endswith("x300") for name in verdict.workloads) and verdict.checks["second_call"] == "pass"
    wrong = narrow.replace("y[wave] = acc", "y[wave] = rows == 1 ? 0.0f : acc")
    assert verdict_of(wrong, tight, worker, gate=gate).workload == "1x300", "a shape beside the main workload"


IN_ANY_ORDER = "    x = x.contiguous() + torch.cumsum(torch.zeros([1], dtype=x.dtype), 0)\n"


@contextmanager
def restless(*, always: bool) -> Iterator[None]:
    """Runs differ in a bit, as those of an operator that adds by atomics on a GPU; always: deterministic ones too."""
    run_many, run_set = LoadedProgram.run_many, LoadedProgram.run_set
    compared = device_judging.first_difference_on_device
    open_runs: set[int] = set()

    def noisy(self: Any, items: Any, **more: Any) -> Any:
        found = run_many(self, items, **more)
        for number, ((_, settings), answer) in enumerate(zip(items, found, strict=False)):
            if isinstance(answer, CallReply) and (always or not settings.get(DETERMINISTIC)):
                tensor_leaves(answer.tree)[0].bits().reshape(-1).view("uint32")[0] ^= number & 1
        return found

    def noted(self: Any, *given: Any, **more: Any) -> Any:
        found = run_set(self, *given, **more)
        if always or not more.get(DETERMINISTIC):
            open_runs.add(found.handle)
        return found

    def differs(session: Any, a: Any, b: Any) -> Any:
        assert compared(session, a, b) is None
        return (0, 0) if a.handle in open_runs else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoadedProgram, "run_many", noisy)
        patch.setattr(LoadedProgram, "run_set", noted)
        patch.setattr(device_judging, "first_difference_on_device", differs)
        yield


@pytest.mark.parametrize("large", [False, True], ids=["small", "its own large shape"])
def test_library_operators_may_add_in_any_order(large: bool, tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    handle = tasks.oracle("row_sum").handle
    oracle = Oracle(handle, seed=20, full_elements=10) if large else tasks.oracle("row_sum")
    own = "    assert x.shape[0] == 33 and x.shape[1] == 300\n" if large else ""
    copied = "    x = x.contiguous() * 1.0\n"
    text = text_of("honest", "row_sum_wave")
    plain, summed = (text.replace("    x = x.contiguous()\n", own + line) for line in (copied, IN_ANY_ORDER))
    with (
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        open_reference(handle, hosts, "cpu") as reference,
        CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker,
    ):
        how = {"reference": reference} if large else {}
        with restless(always=False):
            verdict = verdict_of(summed, oracle, worker, **how)
            assert verdict.passed and verdict.checks["repeats"] == LIBRARY_ORDER, verdict.message
            refused = verdict_of(plain, oracle, worker, **how)
            assert refused.status == "nondeterministic", "no operator of the library explains it"
        with restless(always=True):
            refused = verdict_of(summed, oracle, worker, **how)
            assert refused.status == "nondeterministic", "deterministic operators do not end it: it is the kernels"


@pytest.mark.parametrize(
    ("plan", "any_order"),
    [
        ("torch.ops.aten.convolution.default(x, w, None, [2, 2], [1, 1], [1, 1], True, [1, 1], 8)", True),
        ("torch.nn.functional.conv_transpose2d(x, w)", True),
        ("x.index_add(0, i, w)", True),
        ("torch.ops.aten.convolution_backward(g, x, w)", True),
        ("torch.ops.aten.upsample_bilinear2d_backward(g)", True),
        ("torch.relu(x @ w).output.reshape(-1)", False),
    ],
)
def test_operators_that_may_add_in_any_order_are_known(plan: str, any_order: bool) -> None:
    function = ast.parse(f"def forward(self, x):\n    return {plan}").body[0]
    assert isinstance(function, ast.FunctionDef) and library_adds_in_any_order([function]) == any_order


def test_deterministic_algorithms_end_with_the_call() -> None:
    with library_algorithms({}):
        assert not torch.are_deterministic_algorithms_enabled()
    with library_algorithms({DETERMINISTIC: True}):
        assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.deterministic
    assert torch.utils.deterministic.fill_uninitialized_memory
