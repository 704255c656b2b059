"""Timed calls, resident inputs, crashes and limits of GPU workers, with the cpu target's builds."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.sandbox import Limits, Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.candidate import judge_outputs
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.gpu.verifier import verify_gpu
from tests.load import Watch
from tests.verify.gpu.host_source import HostSource, read_whole
from tests.verify.gpu.judged_programs import built, text_of, verdict_of


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


@pytest.mark.parametrize("program", ["ema_buffer", "ema_in_the_plan"])
def test_late_inputs_of_a_task_that_keeps_state_meet_the_state_of_a_first_call(
    tasks: Any, worker: CandidateWorker, program: str
) -> None:
    oracle = tasks.oracle("ema")
    name = oracle.planned()[0].workload.name
    slots = [oracle.case(name, family).inputs for family in ("given", "normal", "uniform")]
    late = oracle.case(name, "outliers")
    _, parsed, build = built(text_of("honest", program), worker.cache)
    with worker.load(parsed, build, oracle.state) as loaded:
        loaded.place("timed", HostSource(slots), 3)
        side = GpuSide(loaded, "timed", graph=True)
        side.prepare(4)
        side.block(4)
        side.reveal(0, HostSource([late.inputs]), restart=True)
        side.block(3)
        judge_outputs(late, read_whole(loaded, side.timed_output(0))["outputs"], "in a timed call, ")
        side.reveal(0, HostSource([late.inputs]))  # the average is that of many calls
        side.block(3)
        with pytest.raises(Exception, match="in a timed call"):
            judge_outputs(late, read_whole(loaded, side.timed_output(0))["outputs"], "in a timed call, ")


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
    """A source that records which slots are sent."""

    def __init__(self, inner: Any, sent: list[int], index: int = 0) -> None:
        self.inner, self.sent, self.index = inner, sent, index
        self.arguments, self.drawn, self.digest_seed = inner.arguments, inner.drawn, inner.digest_seed
        self.digests, self.host, self.bridged = inner.digests, None, inner.bridged

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
        assert calls == ["load", "run_many", "run_many", "sequence", "unload"]
        calls.clear()
        assert verdict_of(text, oracle, worker).passed
        assert len(calls) <= 9
