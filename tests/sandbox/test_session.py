"""Calls, failures and limits of sessions."""

import os
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from contained import HERE, SERVICE, open_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipwright.errors import CandidateError, ProgramError, WorkerError
from hipwright.sandbox import Limits, RemoteFailure, WorkerDied, WorkerTimeout, Zygote, protocol
from hipwright.tensors import HostTensor, write_bundle
from tests.load import Watch


def test_call_passes_trees_both_ways(zygote):
    shared = HostTensor.of(np.arange(6.0).reshape(2, 3))
    view = HostTensor("float64", (3,), (2,), 1, shared.storage)
    with zygote.session(SERVICE, {"a": (1, 2)}, shared) as session:
        header, (back, kept) = session.call("echo", {"x": float("inf")}, [shared, view, {"n": None}], timeout_s=20)
    assert header == {"x": float("inf"), "init": {"a": (1, 2)}}
    assert np.array_equal(back[0].to_f64(), shared.to_f64()) and np.array_equal(kept.to_f64(), shared.to_f64())
    assert back[1].to_f64().tolist() == [1, 3, 5] and back[0].storage is back[1].storage


def test_sessions_do_not_share_state_and_start_quickly(zygote, session):
    starts = []
    for _ in range(20):
        begin = time.perf_counter()
        with zygote.session(SERVICE, {}):
            starts.append(time.perf_counter() - begin)
    print(f"session start: median {sorted(starts)[10] * 1e3:.1f} ms")
    assert sorted(starts)[10] < 1.0  # a fresh Python with torch takes longer even on an idle machine


def test_errors_arrive_as_what_they_were(zygote, session):
    with pytest.raises(ProgramError, match=r"^line 7: bad plan$") as caught:
        session.call("program_error", timeout_s=20)
    assert caught.value.line == 7 and caught.value.status == "parse_error"
    with pytest.raises(ProgramError, match=r"line 3") as caught:
        session.call("guard", timeout_s=20)
    assert caught.value.evidence["type"] == "OddFailure"
    with pytest.raises(RemoteFailure, match="ValueError: plain") as remote:
        session.call("value_error", timeout_s=20)
    assert "in value_error" in remote.value.traceback_tail
    assert session.call("echo", timeout_s=20)[0]["init"] == {}, "a failed call leaves the session usable"
    with pytest.raises(CandidateError, match=r"^no$") as refused:
        zygote.session(SERVICE, {"fail": True})
    error = refused.value
    assert (error.hint, error.status, error.stage, error.evidence) == ("try yes", "hack", "lint", {"n": 1})


def test_death_tells_how_and_what_it_left(session):
    with pytest.raises(WorkerDied, match="SIGSEGV") as caught:
        session.call("segfault", timeout_s=20)
    assert caught.value.signal == signal.SIGSEGV and caught.value.note == {"kernel": "k", "element": 12}
    assert "last words ?[31m" in caught.value.stderr, "control characters never reach the terminal"
    assert not session.alive
    with pytest.raises(WorkerError, match="has ended"):
        session.call("echo", timeout_s=1)


def test_exit_status_is_reported(session):
    with pytest.raises(WorkerDied, match="exited with status 3") as caught:
        session.call("leave", {"code": 3}, timeout_s=20)
    assert caught.value.returncode == 3 and caught.value.signal is None


@pytest.mark.parametrize("method, header", [("spin", {}), ("sleep", {"s": 60})])
def test_timeout_kills(session, method, header):
    with Watch() as watch, pytest.raises(WorkerTimeout, match=r"longer than 0\.3 s"):
        session.call(method, header, timeout_s=0.3)
    assert watch.seconds < 5 and not session.alive


def test_cpu_limit_kills(zygote):
    with zygote.session(SERVICE, {}, limits=Limits(cpu_s=1)) as session, pytest.raises(WorkerDied) as caught:
        session.call("spin", timeout_s=60)
    assert caught.value.signal in (signal.SIGXCPU, signal.SIGKILL)


def test_memory_limit(zygote):
    with zygote.session(SERVICE, {}, limits=Limits(memory_mb=2048)) as session:
        assert session.call("hog", {"mb": 512}, timeout_s=60)[0]["n"] == 512 << 17
        with pytest.raises(RemoteFailure, match=r"MemoryError|Unable to allocate"):
            session.call("hog", {"mb": 4096}, timeout_s=60)
        assert session.call("echo", timeout_s=20)


def test_long_output_is_dropped_not_fatal(session):
    assert session.call("shout", {"lines": 5000}, timeout_s=20) == ({}, None)


def test_reply_larger_than_its_limit_is_refused(zygote):
    with (
        zygote.session(SERVICE, {}, limits=Limits(memory_mb=1024)) as session,
        pytest.raises(WorkerError, match="larger than the memory limit"),
    ):
        session.call("wide_reply", timeout_s=20)


def _bundle(tree):
    fd = protocol.memory_file("t")
    try:
        write_bundle(fd, tree)
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


_GOOD = _bundle({"header": {"a": 1}, "bundle": HostTensor.of(np.arange(4.0))})
_LEAF = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats())
_JSON = st.recursive(
    _LEAF, lambda t: st.one_of(st.lists(t, max_size=4), st.dictionaries(st.sampled_from("Ttldfv"), t, max_size=2))
)


def _read(data):
    fd = protocol.memory_file("reply")
    try:
        os.ftruncate(fd, len(data))
        os.pwrite(fd, data, 0)
        return protocol.read_reply(fd, 1 << 26)
    finally:
        os.close(fd)


def _framed(text, sizes):
    import json

    head = json.dumps({"tree": text, "sizes": sizes}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(128)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(_framed, _JSON, st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=3)),
        st.builds(
            lambda i, b: _GOOD[: i % len(_GOOD)] + bytes([b]) + _GOOD[i % len(_GOOD) + 1 :],
            st.integers(0, 10_000),
            st.integers(0, 255),
        ),
    )
)
def test_any_bytes_as_a_reply_are_a_worker_error_or_a_reply(data):
    try:
        header, _ = _read(data)
    except WorkerError:
        return
    assert isinstance(header, dict)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["classes", "type", "message", "hint", "status", "stage", "evidence"]), _LEAF))
def test_any_claimed_error_is_a_hipwright_error(said):
    with pytest.raises(WorkerError):
        _read(_bundle({"error": said}))


def test_nested_beyond_the_stack_is_a_worker_error():
    deep = b'{"tree":' + b'{"l":[' * 50_000 + b"]}" * 50_000 + b',"sizes":[]}'
    with pytest.raises(WorkerError):
        _read(len(deep).to_bytes(8, "little") + deep)


@pytest.mark.parametrize("method", ["raw_reply", "mapped_reply", "hang_up", "answer"])
def test_hostile_replies_are_worker_errors_and_end_the_session(tmp_path, method):
    # without containment the service can find its own descriptors, which an attacker would guess
    with (
        Zygote(preload=(), unsafe=True) as zygote,
        zygote.session(SERVICE, {}) as session,
        pytest.raises(WorkerError),
    ):
        session.call(method, {"hex": b"\x08garbage garbage".hex()}, timeout_s=20)
    assert not session.alive


def test_two_hundred_sessions_leak_nothing(zygote):
    with zygote.session(SERVICE, {}):
        pass
    before = open_files()
    for number in range(200):
        with zygote.session(SERVICE, {}) as session:
            if number % 20 == 0:
                with pytest.raises(WorkerDied):
                    session.call("leave", {"code": 1}, timeout_s=20)
            else:
                session.call("echo", timeout_s=20)
    assert open_files() <= before
    with zygote.session(SERVICE, {}) as session:
        pids = session.call("probe", {"read": [], "write": []}, timeout_s=20)[0]["pids"]
    assert len(pids) <= 3, "bwrap's init, the zygote, and this session"


def test_a_dead_zygote_is_replaced():
    with Zygote(preload=(), ro=[HERE]) as zygote:
        with zygote.session(SERVICE, {}) as session:
            zygote._process.end()
            select.select([session._pidfd], [], [], 10)  # its namespace ends a moment later
            with pytest.raises(WorkerError):
                session.call("echo", timeout_s=20)
        with zygote.session(SERVICE, {}) as session:
            assert session.call("echo", timeout_s=20)


def test_replies_outlive_the_session_without_descriptors(zygote):
    with zygote.session(SERVICE, {}) as session:
        before = open_files()
        kept = [session.call("reply_of", {"mb": 1}, timeout_s=20)[1] for _ in range(20)]
        assert open_files() <= before
    assert all(not tensor.to_f64().any() for tensor in kept)


def test_processor_time_is_told_apart_from_waiting(session):
    start = session.cpu_seconds()
    session.call("sleep", {"s": 0.3}, timeout_s=20)
    slept = session.cpu_seconds()
    session.call("work", {"s": 0.3}, timeout_s=60)
    assert slept - start < 0.15 < session.cpu_seconds() - slept
    session.close()
    assert session.cpu_seconds() is None


def test_threads_of_a_fork_may_use_torch_at_once():
    """torch 2.11 to 2.13 lose their thread pool in a fork where several threads first use it together."""
    done = subprocess.run([sys.executable, HERE / "forked_threads.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
