"""Inputs, states and results that pass through a worker's memory, with the CPU as the device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipwright.held import HeldFrom
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle
from hipwright.verify.candidate import Rejected
from hipwright.verify.gpu.bridge import parent
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.device_judging import judge_on_device
from hipwright.verify.gpu.hosts.held_reference import HeldReference
from hipwright.verify.gpu.reference import open_reference
from hipwright.verify.gpu.reference_handles import InputSource
from tests.verify.conftest import TASKS
from tests.verify.gpu.judged_programs import built, text_of, verdict_of

PIECE = 1 << 12


@pytest.fixture
def bridged(monkeypatch: pytest.MonkeyPatch, worker: CandidateWorker) -> None:
    """Everything passes by bridges, in small pieces; chunks fail."""
    worker.close()  # with the bridge of another test
    monkeypatch.setattr(parent, "LEAST_BYTES", 0)
    monkeypatch.setattr(parent.Bridge, "bytes", PIECE)
    defaults = parent.Bridge.__init__.__defaults__
    assert defaults is not None and defaults[0] == parent.PIECE_BYTES
    monkeypatch.setattr(parent.Bridge.__init__, "__defaults__", (PIECE, *defaults[1:]))

    def no_chunks(self: object, *_: Any) -> Iterator[Any]:
        raise AssertionError("sent in chunks")

    monkeypatch.setattr(InputSource, "chunks", no_chunks)


def left(bridge: parent.Bridge) -> bytes:
    return os.pread(bridge._fd, bridge.bytes, 0)


@pytest.mark.parametrize(("name", "right"), [("softmax_online", True), ("uninitialised", False)])
def test_results_are_judged_through_the_bridge(
    name: str, right: bool, bridged: None, open_on_cpu: Any, worker: CandidateWorker
) -> None:
    handle, reference = open_on_cpu("softmax")
    oracle, kind = Oracle(handle, seed=4), "honest" if right else "wrong"
    _, program, build = built(text_of(kind, name), worker.cache)
    expected = reference.expect("given", 9, oracle.state, handle.task.tolerance)
    with worker.load(program, build, oracle.state) as loaded:
        loaded.place("own", reference.inputs("given", 9))
        run = loaded.run_set("own")
        bridge = worker._bridge
        assert bridge is not None and bridge.bytes == PIECE and not any(left(bridge))
        if right:
            assert judge_on_device(loaded, run, reference, expected).ok
        else:
            with pytest.raises(Rejected):
                judge_on_device(loaded, run, reference, expected)
        assert not any(left(bridge))  # the next program finds nothing of this one


def test_a_new_worker_has_a_bridge_of_its_own(bridged: None, open_on_cpu: Any, worker: CandidateWorker) -> None:
    handle, reference = open_on_cpu("softmax")
    state = handle.init_state(0)
    _, program, build = built(text_of("honest", "softmax_online"), worker.cache)
    numbers = []
    for seed in (1, 2):
        with worker.load(program, build, state) as loaded:
            loaded.place("own", reference.inputs("given", seed))
            assert worker._bridge is not None
            numbers.append(worker._bridge.number)
        worker.recycle()
        assert worker._bridge is None and reference._done_bridges == [numbers[-1]]
    assert numbers[0] != numbers[1]


def test_a_host_that_maps_nothing_gets_chunks(
    open_on_cpu: Any, worker: CandidateWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "LEAST_BYTES", 0)
    handle, reference = open_on_cpu("softmax")
    oracle = Oracle(handle, seed=4)
    monkeypatch.setattr(reference, "map_bridge", lambda *_: False)
    _, program, build = built(text_of("honest", "softmax_online"), worker.cache)
    expected = reference.expect("given", 3, oracle.state, handle.task.tolerance)
    worker.recycle()
    with worker.load(program, build, oracle.state) as loaded:
        loaded.place("own", reference.inputs("given", 3))
        assert judge_on_device(loaded, loaded.run_set("own"), reference, expected).ok


def test_held_parameters_reach_the_worker_by_the_bridge(
    bridged: None, task_zygote: Zygote, worker: CandidateWorker, monkeypatch: pytest.MonkeyPatch, cache: BuildCache
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(HeldReference, "_fetch", lambda self, recipe, place: fetched.append(place))
    with (
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        open_task(Path(TASKS / "linear.py"), task_zygote) as handle,
        open_reference(handle, hosts, "cpu") as reference,
    ):
        handle.delegate(HeldReference(lambda: reference), HeldFrom(0, 0.0))
        verdict = verdict_of(text_of("honest", "linear_packed"), Oracle(handle, seed=20), worker, reference=reference)
        assert verdict.passed, verdict.message
        wrong = verdict_of(text_of("wrong", "first_result"), Oracle(handle, seed=20), worker, reference=reference)
        assert wrong.status == "wrong_value"
    assert fetched == []
