"""The parts of GPU verification one by one: resident sets, forged replies, atomics found in a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.errors import DeviceError, GuardFailed, HipwrightError, WorkerError
from hipwright.records import Program, TensorSpec
from hipwright.sandbox import WorkerDied, WorkerTimeout
from hipwright.tensors import HostTensor
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.atomics import adds_floats
from hipwright.verify.bit_differences import first_difference
from hipwright.verify.candidate import CallReply, Rejected, judge
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import RunInfo
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.resident_inputs import ResidentInputs
from hipwright.verify.gpu.side import GpuSide
from hipwright.verify.gpu.subjects import ModelNewSubject
from hipwright.verify.gpu.timing import SubjectTimer
from hipwright.verify.worker.trees import differing
from hipwright.verify.worker.watched import RunSetting, WatchedCandidate
from tests.verify.gpu.host_source import HostSource
from tests.verify.test_reply import CASE, INFO, TREE, X, junk, trees

ONE = {"runs": [INFO]}


# ---------------------------------------------------------------- resident sets


def placed() -> tuple[ResidentInputs, Any]:
    sets = ResidentInputs("cpu")
    values = HostTensor.of(np.arange(60, dtype=np.float32).reshape(5, 12))
    gaps = HostTensor("int16", (3, 4), (10, 2), 1, HostTensor.of(np.arange(40, dtype=np.int16)).storage)
    source = HostSource([[values, 7, gaps]])
    sets.open("a", 0, source.arguments, source.digest_seed)
    for leaf, offset, chunk in source.chunks():
        sets.fill("a", 0, leaf, offset, chunk)
    assert sets.done("a", 0, source.digests())
    return sets, (values, gaps)


def test_a_slot_holds_what_was_sent_strides_and_scalars_too() -> None:
    sets, hosts = placed()
    arguments = sets.slot("a", 0).arguments
    assert arguments[1] == 7 and arguments[2].stride() == (10, 2)
    for host, tensor in zip(hosts, sets.slot("a", 0).tensors(), strict=True):
        assert np.array_equal(tensor.numpy(), host.bits())
    assert sets.stale("a", 2) == [1] and sets.audit() == []


def test_a_changed_element_and_a_write_beside_it_are_found() -> None:
    sets, _ = placed()
    sets.slot("a", 0).tensors()[0][4, 11] += 1
    assert sets.slot("a", 0).changed() == [0]
    assert sets.audit() == [["a", 0, 0, "value"]] and sets.stale("a", 1) == [0]
    sets, _ = placed()
    tensor = sets.slot("a", 0).tensors()[1]
    torch.as_strided(tensor, (1,), (1,), tensor.storage_offset() - 1).fill_(3)
    assert sets.slot("a", 0).strays() == [1] and sets.slot("a", 0).changed() == []
    assert sets.audit() == [], "told once"


def test_all_slots_are_looked_at_in_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    sets, hosts = placed()
    for name, number in (("a", 1), ("a", 2), ("b", 0)):
        source = HostSource([[hosts[0], 7, hosts[1]]])
        sets.open(name, number, source.arguments, 1)
        for leaf, offset, chunk in source.chunks():
            sets.fill(name, number, leaf, offset, chunk)
        assert sets.done(name, number, None)
    sets.slot("a", 1).tensors()[1][0, 0] += 1
    zone = sets.slot("a", 2).tensors()[0]
    torch.as_strided(zone, (1,), (1,), zone.storage_offset() - 1).fill_(3)
    waits, stack = [], torch.stack
    monkeypatch.setattr(torch, "stack", lambda *given: waits.append(1) or stack(*given))
    assert sets.stale("a", 4) == [1, 2, 3] and len(waits) == 1
    assert sets.audit() == [["a", 1, 1, "value"]] and len(waits) == 2  # the zone is restored
    assert sets.stale("a", 3) == [1] and sets.stale("b", 1) == []


def test_an_exchange_of_elements_is_a_change() -> None:
    sets, _ = placed()
    tensor = sets.slot("a", 0).tensors()[0]
    tensor[0], tensor[1] = tensor[1].clone(), tensor[0].clone()
    assert sets.stale("a", 1) == [0]


def test_new_values_come_to_the_old_addresses() -> None:
    sets, (values, gaps) = placed()
    before = [t.data_ptr() for t in sets.slot("a", 0).tensors()]
    source = HostSource([[HostTensor.of(values.bits() * 2), 7, gaps]])
    sets.open("a", 0, source.arguments, 1)
    assert sets.stale("a", 1) == [0], "not whole until it says so"
    for leaf, offset, chunk in source.chunks():
        sets.fill("a", 0, leaf, offset, chunk)
    assert sets.done("a", 0, None) and sets.stale("a", 1) == []
    assert [t.data_ptr() for t in sets.slot("a", 0).tensors()] == before
    assert not sets.done("a", 0, (1, 2)), "other digests than the sender's"


# ---------------------------------------------------------------- replies


class Fake:
    """A zygote and its session: `load` is answered correctly, everything else as given."""

    def __init__(self, reply: Any) -> None:
        self.reply, self.alive = reply, True

    def session(self, *_: object, **__: object) -> Fake:
        self.alive = True
        return self

    def call(self, method: str, *_: object, **__: object) -> Any:
        if method in ("load", "unload"):
            return {"program": 1}, None
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def call_json(self, method: str, *given: object, **more: object) -> Any:
        return self.call(method, *given, **more)[0]

    def close(self) -> None:
        self.alive = False


def loaded(reply: Any) -> LoadedProgram:
    fake: Any = Fake(reply)
    worker = CandidateWorker(fake, "cpu", "cpu", BuildCache("/nowhere"), fresh=False)
    return worker.load(Program(text=""), None, {}, mode="noop")


def answer(reply: Any) -> None:
    judge(CASE, loaded(reply).run(CASE))


def test_an_honest_reply_passes() -> None:
    answer((ONE, [TREE]))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.just("runs"), st.lists(junk, max_size=2) | junk, max_size=2) | junk, st.lists(trees) | junk)
def test_junk_is_refused(info: Any, tree: Any) -> None:
    with pytest.raises(Rejected) as caught:
        answer((info, tree))
    assert caught.value.verdict.fault == "candidate" and caught.value.verdict.status != "pass"
    assert caught.value.verdict.to_json()


@pytest.mark.parametrize(
    "entry",
    [
        {"verdict": {"status": "pass"}},
        {"verdict": {"status": "unscorable", "fault": "task"}},
        {"verdict": {"status": 3}},
        {**INFO, "stats": [{"kernel": "\ud800"}]},
        {"guard": 3, "line": 1},
        {**INFO, "inputs_changed": None},
    ],
)
def test_a_worker_cannot_acquit_itself(entry: Any) -> None:
    with pytest.raises(Rejected) as caught:
        answer(({"runs": [entry]}, [TREE]))
    assert caught.value.verdict.status == "hack"


def test_a_list_that_ends_early_needs_a_verdict() -> None:
    items: list[Any] = [(CASE, {}), (CASE, {})]
    found = loaded(({"runs": [INFO]}, [TREE])).run_many(items)
    assert len(found) == 1 and getattr(found[0], "status", "") == "hack"
    refusal = {"guard": "too wide", "line": 3}
    outcomes = loaded(({"runs": [refusal, INFO]}, [None, TREE])).run_many(items)
    assert isinstance(outcomes[0], GuardFailed) and outcomes[0].line == 3


def test_a_reply_in_another_order_is_a_difference_and_no_crash() -> None:
    y = HostTensor.of(np.zeros(3, np.float32))
    tree = {"outputs": X, "buffers": {"b": y}}
    assert first_difference(CallReply({}, tree), CallReply({}, dict(tree))) is None
    assert first_difference(CallReply({}, tree), CallReply({}, dict(reversed(tree.items())))) == (0, ())


@settings(max_examples=100, deadline=None)
@given(junk, junk)
def test_junk_about_results_and_times_never_crashes_the_parent(info: Any, tree: Any) -> None:
    def run(ask: Any) -> None:
        with pytest.raises((Rejected, HipwrightError)):
            ask(loaded((info if isinstance(info, dict) else {"x": info}, tree)))

    run(lambda one: one.run_set("a"))
    run(lambda one: one.place("a", HostSource([[X]])))
    run(lambda one: one.audit())
    run(lambda one: one.digests(RunInfo(1, {"outputs": (), "buffers": {}}, {}), 1))
    run(lambda one: GpuSide(one, "a", graph=False).prepare(3))


@pytest.mark.parametrize(
    "error", [DeviceError("fell off the bus"), WorkerDied(None, 1), WorkerError("malformed"), WorkerTimeout("run", 1.0)]
)
def test_a_process_that_failed_is_replaced(error: Exception) -> None:
    one = loaded(error)
    with pytest.raises((HipwrightError, Rejected)):
        one.run(CASE)
    assert one._owner.recycled == 1 and not one.alive
    with pytest.raises(WorkerError, match="replaced"):
        one.run(CASE)


def test_a_broken_context_ends_the_process_and_is_the_candidates() -> None:
    fault = {
        "status": "out_of_bounds",
        "fault": "candidate",
        "message": "illegal address",
        "evidence": {"broken": True},
    }
    one = loaded(({"runs": [{"verdict": fault}]}, [None]))
    with pytest.raises(Rejected) as caught:
        one.run(CASE)
    assert caught.value.verdict.status == "out_of_bounds" and one._owner.recycled == 1


# ---------------------------------------------------------------- memory and host code


def test_differing_sees_bits_not_values() -> None:
    a = [torch.tensor([1.0, float("nan")]), torch.tensor([0.0]), torch.ones(2, dtype=torch.bool), torch.ones(3)]
    b = [a[0].clone(), torch.tensor([-0.0]), torch.ones(2, dtype=torch.bool), torch.ones(2)]
    assert differing(a, b) == [1, 3]


class Model:
    """What program.modelnew.run.load returns."""

    def __init__(self, act: Any) -> None:
        self.params, self.buffers, self.act = {"w": torch.ones(3)}, {}, act

    def __call__(self, x: Any) -> Any:
        return self.act(self, x)


def host_code_candidate(act: Any) -> WatchedCandidate:
    table = {"params": {"w": torch.ones(3)}, "buffers": {"mask": torch.zeros(2)}, "attrs": {}, "modules": {}}
    return WatchedCandidate(lambda setting, state: ModelNewSubject(Model(act), state, "cpu", setting.poison), table)


def test_foreign_code_is_judged_by_what_it_leaves() -> None:
    x = HostTensor.of(np.ones(3, np.float32))
    info, tree = host_code_candidate(lambda m, x: x * m.params["w"]).run({}, [x])
    assert info["inputs_changed"] == [] and info["aliases"] == [] and set(tree["buffers"]) == {"mask"}
    info, _ = host_code_candidate(lambda m, x: x.data.add_(1)).run({}, [x])
    assert info["inputs_changed"] == [0] and info["aliases"] == [["output", "inputs[0]"]]
    with pytest.raises(HipwrightError, match="writes to tensor 0"):
        host_code_candidate(lambda m, x: x.add_(1)).run({}, [x])
    info, _ = host_code_candidate(lambda m, x: x + m.params["w"].data.add_(1)).run({}, [x])
    assert info["params_changed"] == [0]


def test_foreign_code_that_raises_or_writes_beside_its_input() -> None:
    x = HostTensor.of(np.ones(3, np.float32))

    def beside(m: Any, x: Any) -> Any:
        import ctypes

        ctypes.memset(x.data_ptr() + 12, 7, 1)
        return x * 1

    with pytest.raises(HipwrightError) as caught:
        host_code_candidate(beside).run({}, [x])
    assert caught.value.status == "out_of_bounds"
    with pytest.raises(HipwrightError, match="ZeroDivisionError"):
        host_code_candidate(lambda m, x: 1 // 0).run({}, [x])
    with pytest.raises(HipwrightError) as caught:
        host_code_candidate(lambda m, x: object()).run({}, [x])
    assert caught.value.status == "bad_output_spec"


def test_a_timer_rotates_and_shows_late_values() -> None:
    live = host_code_candidate(lambda m, x: x * 2)
    live.prepare(RunSetting())
    slots = [[torch.full((4,), float(i))] for i in range(3)]
    timer = SubjectTimer(live.subject, slots, "cpu", graph=True)
    assert timer.prepare(4)["policy"] == "stream"
    with pytest.raises(HipwrightError, match="revealed"):
        timer.outputs(0)
    slots[1][0].fill_(9.0)
    timer.poison(0x5A)
    timer.block(3)
    assert timer.outputs(1).tolist() == [18.0] * 4 and timer.outputs(2).tolist() == [4.0] * 4
    timed = timer.block(2)
    assert 0 <= timed["device_ms"] <= timed["host_ms"]


# ---------------------------------------------------------------- atomics in text

KERNEL = 'extern "C" __global__ void k(float* y, int* n, const float* x, unsigned int* u, double* d) {{ {0} }}'


@pytest.mark.parametrize(
    ("body", "floats"),
    [
        ("atomicAdd(y + 3, x[0]);", True),
        ("atomicAdd(&y[0], 1.0f);", True),
        ("unsafeAtomicAdd(d, 1.0);", True),
        ("atomicAdd(n, 1);", False),
        ("atomicAdd(&u[threadIdx.x], 1u);", False),
        ("// atomicAdd(y, 1.f)\n", False),
        ("__shared__ float s[4]; atomicAdd(&s[1], 1.f);", True),
        ("__shared__ int c; atomicAdd(&c, 1);", False),
        ("atomicMax(n, 3);", False),
        ("atomicCAS(u, 1u, 2u);", False),
        ("somewhere->atomicAdd (q, 1);", True),
        ("atomicCAS(u, __float_as_uint(x[0]), 2u);", True),
        ("atomicAdd((float*)n, 1.0f);", True),
    ],
)
def test_what_a_text_says_of_float_atomics(body: str, floats: bool) -> None:
    assert adds_floats(KERNEL.format(body)) is floats


def test_specs_of_a_source() -> None:
    source = HostSource([[X], [X]])
    assert source.arguments == [TensorSpec(dtype="float32", shape=(2, 3), stride=(3, 1))]
    assert source.drawn == HostSource(source._trees).drawn != source.slot(1).drawn
