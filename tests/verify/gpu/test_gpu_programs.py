"""verify_gpu with the cpu target's builds (driver "cpu"): the same stages, one process, no GPU.

What a GPU lane cannot see as such is listed here: no access is checked, so a read outside a buffer shows by the poison
it brings along, and a race only where it does harm under the orders tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipwright.program import parse
from hipwright.records import Program, Verdict
from hipwright.sandbox import Limits, Zygote
from hipwright.task import TaskHandle
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import Oracle
from hipwright.verify.candidate import judge_outputs
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.device_judging import judge_on_device
from hipwright.verify.gpu.large_shapes import TimedInputs
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.gpu.verifier import verify_gpu, verify_timed
from hipwright.verify.verification import UNCLAIMED
from tests.load import Watch
from tests.verify.gpu.host_source import HostSource, read_whole

ROOT = Path(__file__).parents[2] / "programs"
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


@pytest.fixture(scope="module")
def workers(cache: BuildCache) -> Iterator[Zygote]:
    modules = ("torch", "hipwright.verify.gpu.worker", "hipwright.verify.worker.warm")
    with Zygote(modules, ro=[cache.folder], name="GPU candidates") as zygote:
        yield zygote


@pytest.fixture(scope="module")
def worker(workers: Zygote, cache: BuildCache) -> Iterator[CandidateWorker]:
    with CandidateWorker(workers, "cpu", "cpu", cache) as found:
        yield found


def text_of(kind: str, name: str) -> str:
    return (ROOT / kind / f"{name}.py").read_text()


def built(text: str, cache: BuildCache) -> Any:
    parsed = parse(text)
    build = cpu.build(parsed.hip, parsed.defines(), wave=64, checked=False, cache=cache)
    assert build.ok, build.log
    return parsed, Program(text=text), build


def verdict_of(text: str, oracle: Oracle, worker: CandidateWorker, **more: Any) -> Verdict:
    parsed, program, build = built(text, worker.cache)
    return verify_gpu(parsed, program, build, oracle, more.pop("reference", None), worker, **more)


def verdict_when_timed(text: str, oracle: Oracle, reference: Any, worker: CandidateWorker) -> Verdict:
    """By the fast gate, of a program for the task's own large shape alone."""
    parsed, program, build = built(text, worker.cache)
    unclaimed = verify_gpu(parsed, program, build, oracle, None, worker, gate="fast")
    assert unclaimed.status == "unscorable" and unclaimed.evidence[UNCLAIMED]
    return verify_timed(
        parsed, program, build, oracle, reference, worker, TimedInputs(oracle.state, "timed", "given", 7, 2)
    )


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


def test_a_warm_process_serves_one_program_after_another(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    with CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker:
        sessions = set()
        for kind, name, task in (
            ("honest", "row_sum_wave", "row_sum"),
            ("wrong", "writes_input", "row_sum"),
            ("honest", "linear_packed", "linear"),
            ("wrong", "wave32", "row_sum"),
            ("honest", "row_sum_tree", "row_sum"),
        ):
            assert verdict_of(text_of(kind, name), tasks.oracle(task), worker).passed is (kind == "honest")
            sessions.add(worker.session)
        assert len(sessions) == 1 and worker.recycled == 0


def test_host_code_gets_a_process_for_each_program(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    with CandidateWorker(workers, "cpu", "cpu", cache) as worker:
        sessions = []
        for name in ("row_sum_wave", "row_sum_tree"):
            assert verdict_of(text_of("honest", name), tasks.oracle("row_sum"), worker, gate="fast").passed
            sessions.append(worker.session)
        assert sessions[0] is not sessions[1]


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
        # right at every shape but the task's own
        text = text_of("honest", "batch_norm_columns")
        worse = text.replace("y[i * c + j] = (x", "y[i * c + j] = (n == 64 && i == n - 1 ? 1e-3f : 0.0f) + (x")
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


def timed_outputs(handle: TaskHandle, reference: Any, worker: CandidateWorker) -> None:
    """What a timed call left for values that came late is compared on the device."""
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


def test_a_timed_call_that_hands_out_old_results_is_caught(tasks: Any, worker: CandidateWorker) -> None:
    oracle = tasks.oracle("linear")
    name = oracle.planned()[0].workload.name
    slots = [oracle.case(name, family).inputs for family in ("given", "normal", "uniform")]
    late = oracle.case(name, "outliers")
    for kind, text in (("honest", "linear_packed"), ("wrong", "first_result")):
        _, program, build = built(text_of(kind, text), worker.cache)
        with worker.load(program, build, oracle.state) as loaded:
            loaded.place("timed", HostSource(slots), 3)
            side = GpuSide(loaded, "timed", graph=True)
            side.prepare(4)
            block = side.block(6)
            assert 0 < block.device_ms <= block.wall_ms and block.host_ms <= block.wall_ms and block.calls == 6
            assert len(side.latency(4)) == 4 and side.block(0).calls == 0
            side.reveal(2, HostSource([late.inputs]))
            side.block(3)
            if kind == "honest":
                judge_outputs(late, read_whole(loaded, side.timed_output(2))["outputs"], "in a timed call, ")
                continue
            with pytest.raises(Exception, match="in a timed call"):
                judge_outputs(late, read_whole(loaded, side.timed_output(2))["outputs"], "in a timed call, ")


def test_one_who_writes_to_resident_inputs_is_caught_and_they_are_filled_anew(
    tasks: Any, workers: Zygote, cache: BuildCache
) -> None:
    oracle = tasks.oracle("row_sum")
    name = oracle.planned()[0].workload.name
    case = oracle.case(name, "normal")
    source = HostSource([case.inputs, oracle.case(name, "given").inputs])
    sent: list[int] = []
    with CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker:
        for kind, text in (
            ("honest", "row_sum_wave"),
            ("wrong", "writes_input"),
            ("honest", "row_sum_tree"),
            ("honest", "row_sum_wave"),
        ):
            _, program, build = built(text_of(kind, text), cache)
            with worker.load(program, build, oracle.state) as loaded:
                loaded.place("own", Counted(source, sent), 2)
                run = loaded.run_set("own", 0, case=case)
                assert run.info["inputs_changed"] == ([] if kind == "honest" else [0])
                assert loaded.audit() == ([] if kind == "honest" else [("own", 0, 0, "value")])
                if kind == "honest":
                    tree = read_whole(loaded, run)
                    assert tree["outputs"].shape == (case.inputs[0].shape[0],)
                    raw = b"".join(chunk.storage.tobytes() for _, _, chunk in loaded.chunks(run, bytes_=64))
                    assert raw == tree["outputs"].storage.tobytes()
    assert sent == [0, 1, 0], "slot 0 is filled again after the program that wrote to it, and only then"


class Counted:
    """A source that notes which slots are sent."""

    def __init__(self, inner: Any, sent: list[int], index: int = 0) -> None:
        self.inner, self.sent, self.index = inner, sent, index
        self.arguments, self.drawn, self.digest_seed = inner.arguments, inner.drawn, inner.digest_seed
        self.digests = inner.digests

    def chunks(self) -> Any:
        self.sent.append(self.index)
        return self.inner.chunks()

    def slot(self, index: int) -> Counted:
        return Counted(self.inner.slot(index), self.sent, index)


def test_a_crash_is_the_candidates_and_costs_the_next_nothing(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    with CandidateWorker(workers, "cpu", "cpu", cache, fresh=False) as worker:
        oracle = tasks.oracle("row_sum")
        assert verdict_of(text_of("honest", "row_sum_wave"), oracle, worker, gate="fast").passed
        crash = verdict_of(text_of("wrong", "lds_index"), oracle, worker, gate="fast")
        assert crash.status == "out_of_bounds" and worker.recycled == 1
        assert verdict_of(text_of("honest", "row_sum_tree"), oracle, worker, gate="fast").passed
        assert worker.recycled == 1


def test_a_call_that_never_returns_ends_at_the_limit(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    oracle = tasks.oracle("row_sum")
    oracle.status()
    oracle.case(oracle.planned()[0].workload.name, "normal")
    with CandidateWorker(workers, "cpu", "cpu", cache, limit_s=1.0) as worker:  # below the launch's own limit
        _, program, build = built(text_of("wrong", "endless"), cache)
        worker.open()
        with Watch() as watch:
            verdict = verify_gpu(None, program, build, oracle, None, worker)
        assert verdict.status == "timeout" and verdict.fault == "candidate", verdict.message
        assert watch.seconds < 1.0 + 5.0
        assert worker.recycled == 1


def test_absurd_memory_is_refused(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    oracle = tasks.oracle("row_sum")
    text = text_of("honest", "row_sum_wave")
    at_once = text.replace("    x = x.contiguous()\n", "    x = x.contiguous()\n    z = torch.empty((1 << 30,))\n", 1)
    library = text.replace("    x = x.contiguous()\n", "    x = x.contiguous()\n    z = torch.zeros((1 << 40,))\n", 1)
    assert at_once != text != library
    with CandidateWorker(
        workers, "cpu", "cpu", cache, memory_limit_bytes=1 << 30, limits=Limits(memory_mb=4096)
    ) as worker:
        for greedy in (at_once, library):
            verdict = verdict_of(greedy, oracle, worker, gate="fast")
            assert verdict.status == "launch_error" and "memory" in verdict.message, verdict.message
        assert verdict_of(text, oracle, worker, gate="fast").passed


def test_a_verification_needs_few_messages(tasks: Any, workers: Zygote, cache: BuildCache) -> None:
    oracle = tasks.oracle("row_sum")
    text = text_of("honest", "row_sum_wave")
    with CandidateWorker(workers, "cpu", "cpu", cache) as worker:
        calls: list[str] = []
        real = worker.call
        worker.call = lambda method, *a, **k: (calls.append(method), real(method, *a, **k))[1]  # type: ignore[method-assign]
        assert verdict_of(text, oracle, worker, gate="fast").passed
        assert calls == ["load", "run_many", "run_many", "again", "unload"]
        calls.clear()
        assert verdict_of(text, oracle, worker).passed
        assert len(calls) <= 9
