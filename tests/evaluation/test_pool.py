"""The dispatcher on fake GPUs: efficiency, order, affinity, faults, hangs, interruption. No GPU is needed."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from hipwright.errors import CandidateError, DeviceError, ToolchainError, WorkerError
from hipwright.evaluation.gpu.memory import DeviceMemory
from hipwright.evaluation.gpu.waits import Waits
from hipwright.evaluation.pool import Dispatcher, EvaluationJob
from hipwright.evaluation.schedule import JobQueue
from tests.load import Watch

# seconds of the phases of one small task on one GPU, a fifth of the real ones
BUILD_S, PREPARE_S, EVALUATE_S = 0.008, 0.10, 0.06


@dataclass
class FakeDevice:
    """Sleeps for each phase and records it. slow: factor; faults: {job key: faults to raise}; hangs: job keys."""

    name: str
    slow: float = 1.0
    faults: Counter = field(default_factory=Counter)
    broken: bool = False
    hangs: set = field(default_factory=set)
    deaf: bool = False

    def __post_init__(self):
        self.warm = ""
        self.prepared, self.seen = [], []
        self.aborted = threading.Event()
        self._lock = threading.Lock()

    def prepare(self, job):
        if self.broken:
            raise DeviceError("this GPU is gone")
        with self._lock:
            if self.warm == job.group:
                return
            self.warm = job.group
        self.prepared.append(job.group)
        time.sleep(PREPARE_S * self.slow)

    def evaluate(self, job, built):
        assert built == f"built {job.key}"
        self.seen.append(job.key)
        if job.key in self.hangs:
            if self.deaf:
                time.sleep(5)
            elif self.aborted.wait(30):
                self.aborted.clear()
                self.hangs.discard(job.key)
                raise DeviceError("aborted")
        time.sleep(EVALUATE_S * self.slow)
        if self.faults[job.key] > 0:
            self.faults[job.key] -= 1
            raise DeviceError(f"illegal address while {job.key} ran")
        return f"{'wrong' if job.payload == 'wrong' else 'timed'} {job.key}"

    def abort(self):
        self.aborted.set()


def build(job):
    time.sleep(BUILD_S)
    if job.payload == "bug":
        raise CandidateError("the candidate has no plan")
    return f"built {job.key}"


def jobs_of(groups, each, payload=None):
    return [EvaluationJob(f"t{g}/p{i}", f"t{g}", payload) for g in range(groups) for i in range(each)]


def run(devices, jobs, **options):
    events = []
    dispatcher = Dispatcher(devices, build, listener=lambda kind, data: events.append((kind, data)), **options)
    return dispatcher.run(jobs), events


# ---------------------------------------------------------------- efficiency


@pytest.mark.parametrize("groups, each", [(40, 8), (4, 80), (320, 1)])
def test_eight_devices_do_at_least_six_times_the_work(groups, each):
    jobs = jobs_of(groups, each)
    # one device, one job after the other: every group is opened once, builds overlap with the device
    one = groups * PREPARE_S + len(jobs) * EVALUATE_S
    devices = [FakeDevice(f"gpu{i}") for i in range(8)]
    with Watch() as watch:
        outcomes, _ = run(devices, jobs)
    elapsed = watch.seconds
    print(f"{groups} x {each}: {one:.2f} s alone, {elapsed:.2f} s on eight: {one / elapsed:.2f}")
    assert all(outcome.value == f"timed {outcome.job.key}" for outcome in outcomes)
    assert one / elapsed >= 0.75 * 8


def test_one_device_in_the_fake_takes_what_the_sum_says():
    """Measures the reference of the test above, so that its estimate for one device is not too long."""
    jobs = jobs_of(5, 4)
    begin = time.monotonic()
    run([FakeDevice("gpu0")], jobs)
    elapsed = time.monotonic() - begin
    assert elapsed >= 5 * PREPARE_S + len(jobs) * EVALUATE_S


def test_a_slow_device_holds_nobody_up():
    devices = [FakeDevice(f"gpu{i}") for i in range(7)] + [FakeDevice("slow", slow=8.0)]
    jobs = jobs_of(24, 8)
    with Watch() as watch:
        outcomes, _ = run(devices, jobs)
    elapsed = watch.seconds
    assert all(outcome.error is None for outcome in outcomes)
    done = Counter(outcome.device for outcome in outcomes)
    fair = (24 * PREPARE_S + len(jobs) * EVALUATE_S) / 7.125
    longest_wait = 8 * (PREPARE_S + EVALUATE_S)  # the slow one's last job, taken just before the end
    assert elapsed < fair / 0.75 + longest_wait and 0 < done["slow"] < len(jobs) / 16


# ---------------------------------------------------------------- order, affinity


def test_outcomes_come_in_order_and_each_once_as_it_is_done():
    rng = random.Random(3)
    jobs = [
        EvaluationJob(f"t{g}/p{i}", f"t{g}", rng.choice([None, "wrong", "bug"])) for g in range(6) for i in range(5)
    ]
    seen = []
    devices = [FakeDevice(f"gpu{i}") for i in range(3)]
    outcomes = Dispatcher(devices, build).run(jobs, on_done=lambda outcome: seen.append(outcome.job.key))
    assert [outcome.job for outcome in outcomes] == jobs
    assert sorted(seen) == sorted(job.key for job in jobs)
    for outcome in outcomes:
        key, payload = outcome.job.key, outcome.job.payload
        if payload == "bug":
            assert isinstance(outcome.error, CandidateError) and outcome.attempts == 1
        else:
            word = {None: "timed", "wrong": "wrong"}[payload]
            assert outcome.value == f"{word} {key}" and outcome.error is None
    assert not any(job.key in device.seen for device in devices for job in jobs if job.payload == "bug")


def test_a_group_stays_where_it_is_warm():
    devices = [FakeDevice(f"gpu{i}") for i in range(4)]
    run(devices, jobs_of(4, 12))
    assert sum(len(device.prepared) for device in devices) <= 4 + 3, "a group moves only at the end, to help"


@pytest.mark.parametrize(("left", "helps"), [(5, False), (40, True)])
def test_help_pays_for_the_whole_opening(left, helps):
    jobs = JobQueue(jobs_of(2, 50), ahead=100, devices=2)
    for _ in range(100):
        jobs.built(jobs.next_build(), None)
    for device, count in (("gpu0", 50 - left), ("gpu1", 50)):
        for number in range(count):
            jobs.next_job(device, ["gpu0", "gpu1"])
            jobs.spent(device, *((0.001, 1.0) if number else (2.0, 8.0)))
    assert (jobs.next_job("gpu1", ["gpu0", "gpu1"]) is not None) == helps


def test_builds_go_no_further_ahead_than_asked():
    jobs = JobQueue(jobs_of(5, 5), ahead=3)
    assert [jobs.next_build() is not None for _ in range(5)] == [True, True, True, False, False]


def test_two_jobs_of_one_key_are_a_mistake():
    with pytest.raises(ValueError, match="same key"):
        Dispatcher([FakeDevice("g")], build).run([EvaluationJob("a", ""), EvaluationJob("a", "")])


# ---------------------------------------------------------------- faults


def test_a_device_fault_is_tried_again_elsewhere():
    faults = Counter({"t1/p2": 1})  # the first device that runs it
    devices = [FakeDevice(f"gpu{i}") for i in range(3)]
    for device in devices:
        device.faults = faults
    outcomes, events = run(devices, jobs_of(3, 4))
    assert all(outcome.value == f"timed {outcome.job.key}" for outcome in outcomes)
    again = next(outcome for outcome in outcomes if outcome.job.key == "t1/p2")
    ran = {device.name: device.seen.count("t1/p2") for device in devices if "t1/p2" in device.seen}
    assert sorted(ran.values()) == [1, 1] and again.device in ran and again.attempts == 2
    assert [data["job"] for kind, data in events if kind == "retry"] == ["t1/p2"]


def test_a_job_that_always_faults_ends_and_takes_no_device_with_it():
    device = FakeDevice("gpu0", faults=Counter({"t0/p1": 99}))
    outcomes, events = run([device], jobs_of(2, 3))
    bad = [outcome for outcome in outcomes if outcome.error is not None]
    assert [outcome.job.key for outcome in bad] == ["t0/p1"] and bad[0].attempts == 3
    assert isinstance(bad[0].error, DeviceError) and not any(kind == "device_lost" for kind, _ in events)


def test_a_broken_device_is_given_up_and_the_others_do_its_work():
    devices = [FakeDevice("gpu0"), FakeDevice("gone", broken=True), FakeDevice("gpu2")]
    outcomes, events = run(devices, jobs_of(9, 2))
    assert all(outcome.error is None and outcome.device != "gone" for outcome in outcomes)
    assert [data["device"] for kind, data in events if kind == "device_lost"] == ["gone"]


def test_with_no_device_left_every_job_says_so():
    outcomes, _ = run([FakeDevice("gone", broken=True)], jobs_of(8, 1))
    assert len(outcomes) == 8 and all(isinstance(outcome.error, DeviceError) for outcome in outcomes)


def test_a_hanging_job_is_aborted_and_tried_again():
    devices = [FakeDevice("gpu0", hangs={"t0/p0"}), FakeDevice("gpu1", hangs={"t0/p0"})]
    with Watch() as watch:
        outcomes, events = run(devices, jobs_of(4, 3), hang_s=0.6)
    assert all(outcome.error is None for outcome in outcomes) and watch.seconds < 10
    assert {data["job"] for kind, data in events if kind == "hang"} == {"t0/p0"}


def test_a_device_that_cannot_be_aborted_is_given_up():
    devices = [FakeDevice("deaf", hangs={"t0/p0", "t1/p0", "t2/p0", "t3/p0"}, deaf=True), FakeDevice("gpu1")]
    outcomes, events = run(devices, jobs_of(4, 1), hang_s=0.5)
    assert all(outcome.error is None and outcome.device == "gpu1" for outcome in outcomes)
    assert [data["device"] for kind, data in events if kind == "device_lost"] == ["deaf"]


def test_a_compiler_fault_is_tried_again():
    failures = Counter({"t0/p0": 1, "t1/p0": 5})

    def flaky(job):
        if failures[job.key] > 0:
            failures[job.key] -= 1
            raise ToolchainError("the compiler died")
        return f"built {job.key}"

    outcomes = Dispatcher([FakeDevice("gpu0")], flaky).run(jobs_of(2, 1))
    assert outcomes[0].value == "timed t0/p0" and outcomes[0].attempts == 2
    assert isinstance(outcomes[1].error, ToolchainError) and outcomes[1].attempts == 3


def test_ctrl_c_hands_over_what_is_done_and_stops():
    seen = []

    def on_done(outcome):
        seen.append(outcome.job.key)
        if len(seen) == 5:
            raise KeyboardInterrupt

    devices = [FakeDevice(f"gpu{i}") for i in range(4)]
    with pytest.raises(KeyboardInterrupt):
        Dispatcher(devices, build).run(jobs_of(10, 10), on_done=on_done)
    later = [sum(len(device.seen) for device in devices)]
    while len(later) < 2 or later[-1] > later[-2]:  # running jobs may end
        time.sleep(0.3)
        later.append(sum(len(device.seen) for device in devices))
    assert later[-1] < 100, "nothing is started after it"
    assert len(seen) == len(set(seen)) >= 5
    assert all(device.aborted.is_set() for device in devices)


def test_what_an_interrupt_ends_has_no_outcome():
    """Its error is the interrupt's, and the job is judged another time."""
    seen, devices = [], [AbortedDevice("slow"), FakeDevice("quick")]

    def on_done(outcome):
        seen.append(outcome)
        devices[0].running.wait(5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Dispatcher(devices, build).run(jobs_of(2, 1), on_done=on_done)
    assert devices[0].aborted.is_set() and devices[0].ended.wait(5)
    assert len(seen) == 1 and all(outcome.error is None for outcome in seen)


class AbortedDevice(FakeDevice):
    """Runs until it is aborted."""

    def __init__(self, name):
        super().__init__(name)
        self.running, self.ended = threading.Event(), threading.Event()

    def evaluate(self, job, built):
        self.running.set()
        self.aborted.wait(20)
        self.ended.set()
        raise WorkerError("its process has ended: exit code -9")

    def abort(self):
        super().abort()
        self.ended.wait(5)
        time.sleep(0.2)  # its error is there before the run looks for outcomes


# ---------------------------------------------------------------- waiting


class SharedDevice(FakeDevice):
    """Shares one memory with others: a job holds all of it from `prepare` on."""

    memory: DeviceMemory

    def prepare(self, job):
        self._held = self.memory.reserve(100)
        super().prepare(job)

    def evaluate(self, job, built):
        try:
            return super().evaluate(job, built)
        finally:
            self._held.leave()


def test_waiting_for_memory_is_neither_work_nor_a_hang():
    devices = [SharedDevice(f"gpu {n}") for n in range(4)]
    memory = DeviceMemory(100)
    for device in devices:
        device.memory = memory
    jobs = jobs_of(8, 1)
    each = PREPARE_S + EVALUATE_S
    for _ in range(3):  # a machine that stands still for half a second makes any job a long one
        outcomes, events = run(devices, jobs, hang_s=3 * each)
        hangs = [e for e in events if e[0] == "hang"]
        if not hangs:
            break
    assert [outcome.error for outcome in outcomes] == [None] * 8 and not hangs
    for outcome in outcomes:
        assert each <= outcome.seconds["prepare"] + outcome.seconds["evaluate"] < 2.5 * each
    waited = sorted(outcome.waited for outcome in outcomes)
    assert waited[0] < each and waited[-1] > 2 * each
    assert outcomes[0].attempts == 1


def test_a_wait_that_goes_on_is_counted_from_outside():
    waits, begun, go_on = Waits(), threading.Event(), threading.Event()

    def wait():
        waits.restart()
        with waits.waiting():
            begun.set()
            go_on.wait(5)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait(5)
    time.sleep(0.05)
    so_far = waits.seconds(thread.ident)
    go_on.set()
    thread.join()
    assert 0.05 <= so_far <= waits.seconds(thread.ident) and waits.seconds() == 0.0
