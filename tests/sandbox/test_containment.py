"""What contained code can access: real attempts, made inside."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from contained import HERE, SERVICE

from hipwright.api import doctor
from hipwright.errors import InfrastructureError, SandboxMissing
from hipwright.sandbox import Limits, WorkerDied, Zygote, available, bwrap, run_tool, seccomp
from hipwright.toolchain import probe

LOCKED_OUT = ("write", "socket", "fork", "exec", "kill", "memory", "environ", "memfd", "thread", "shared", "limits")


def test_no_secrets_no_network_no_files(zygote, monkeypatch, tmp_path):
    monkeypatch.setenv("API_KEY", "secret")
    (tmp_path / "private").write_text("x")
    read = ["/root", "/home", "/etc/passwd", "/etc/hostname", str(tmp_path / "private"), str(HERE.parent), "/usr/bin"]
    write = ["/x", "/usr/x", "/dev/shm/x", "/tmp/x", str(HERE / "x"), "/proc/sys/kernel/core_pattern"]
    with Zygote(preload=(), ro=[HERE]) as fresh, fresh.session(SERVICE, {}) as session:
        seen = session.call("probe", {"read": read, "write": write}, timeout_s=30)[0]
    assert not any("API_KEY" in name or "secret" in value for name, value in seen["env"].items())
    assert seen["network"] != "connected" and seen["core"] == 0 and seen["uid"] == 65534
    allowed = {"/usr/bin"} | {path for path in read if _shows_only(path)}
    assert set(seen["readable"]) <= allowed
    assert seen["writable"] == ["/tmp/x"]


def _shows_only(path: str) -> bool:
    """Folders on the way to a visible path exist inside, with nothing else in them."""
    return any(Path(shown).is_relative_to(path) for shown in (HERE, sys.base_prefix, *sys.path) if str(shown))


def test_folders_on_the_way_show_nothing_else(zygote):
    with zygote.session(SERVICE, {}) as session:
        seen = session.call(
            "probe", {"read": [str(HERE.parent / "bad_input"), "/root/.ssh"], "write": []}, timeout_s=20
        )
    assert seen[0]["readable"] == []


def test_lockdown_leaves_compute_and_nothing_else(zygote):
    with zygote.session(SERVICE, {}) as neighbour, zygote.session(SERVICE, {}) as session:
        pid = neighbour._pid
        session.call("lock", timeout_s=20)
        got = session.call("attempts", {"names": [*LOCKED_OUT, "setown"], "pid": pid}, timeout_s=20)[0]
        assert {name: got[name] for name in LOCKED_OUT if got[name] == "done"} == {}
        assert got["setown"] != "done"
        fine = session.call("attempts", {"names": ["read", "matmul"], "pid": pid}, timeout_s=60)[0]
        assert fine == {"read": "done", "matmul": "True"}
        assert session.call("lock", timeout_s=20) == ({}, None), "idempotent"
        assert neighbour.call("echo", timeout_s=20)


def test_lockdown_for_the_task_host(zygote):
    with zygote.session(SERVICE, {}) as neighbour, zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": "task"}, timeout_s=20)
        names = ["socket", "fork", "exec", "kill", "memory", "environ", "setown", "write", "thread", "matmul"]
        got = session.call("attempts", {"names": names, "pid": neighbour._pid}, timeout_s=60)[0]
        assert {name for name, outcome in got.items() if outcome in ("done", "True")} == {"write", "thread", "matmul"}
        assert neighbour.call("echo", timeout_s=20)


@pytest.mark.parametrize("profile", ["candidate", "task"])
def test_ptrace_is_fatal(zygote, profile):
    with zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": profile}, timeout_s=20)
        with pytest.raises(WorkerDied, match="SIGSYS"):
            session.call("attack", timeout_s=20)


@pytest.mark.parametrize("profile", ["candidate", "task"])
def test_fork_bomb_is_refused(zygote, profile):
    from hipwright.sandbox import RemoteFailure

    with zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": profile}, timeout_s=20)
        with pytest.raises(RemoteFailure, match="PermissionError"):
            session.call("fork_bomb", timeout_s=20)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("profile", ["candidate", "task"])
def test_filter_jumps_stay_inside(machine, profile):
    code = seccomp.program(profile, machine, 1234)
    assert len(code) < 4096
    returns = 0x06
    for at, (opcode, yes, no, _) in enumerate(code):
        assert opcode == returns or at + 1 + max(yes, no) < len(code)
        assert yes < 256 and no < 256
    assert code[-1][0] == returns


@pytest.mark.parametrize("unsafe", [False, True])
def test_kill_9_of_the_parent_leaves_no_process(tmp_path, unsafe):
    mark = f"hipwright-orphan-{os.getpid()}-{unsafe}"
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from hipwright.sandbox import Zygote
        zygote = Zygote(preload=(), ro=[Path({str(HERE)!r})], unsafe={unsafe})
        session = zygote.session({SERVICE!r}, {{"mark": {mark!r}}})
        print(zygote._process._process.pid, flush=True)
        try:
            session.call("sleep", {{"s": 300}}, timeout_s=300)
        finally:
            time.sleep(300)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    root = int(parent.stdout.readline())
    tree = _tree(root)
    assert len(tree) >= 2, "the zygote and its session"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while (left := [pid for pid in tree if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_zygote_started_in_a_thread_outlives_it():
    import threading

    with Zygote(preload=(), ro=[HERE]) as zygote:
        made = []
        thread = threading.Thread(target=lambda: made.append(zygote.session(SERVICE, {})))
        thread.start()
        thread.join()
        time.sleep(0.2)
        with made[0] as session:
            assert session.call("echo", timeout_s=20)


def test_without_bwrap_nothing_runs_unless_unsafe(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    works, why = available()
    assert not works and "not installed" in why
    with pytest.raises(SandboxMissing, match="no sandbox") as caught:
        run_tool(["/bin/true"])
    assert "--unsafe" in caught.value.hint and caught.value.exit_code == 3
    assert "apt-get install bubblewrap" in caught.value.hint
    with Zygote(preload=()) as zygote, pytest.raises(SandboxMissing):
        zygote.session(SERVICE, {})
    assert run_tool(["/bin/echo", "hi"], unsafe=True).stdout == "hi\n"


def test_a_bubblewrap_that_is_refused_is_not_to_be_installed(monkeypatch, tmp_path):
    """As in a container that makes no namespaces: the hint says what allows them, other checks name the cause."""
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace. See <x>' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert available() == (False, "bubblewrap does not run here: No permissions to create new namespace")
    with pytest.raises(SandboxMissing) as caught:
        run_tool(["/bin/true"])
    assert "apt-get" not in caught.value.hint and "In a container" in caught.value.hint
    checks = {check.name: check for check in [*doctor.own_checks(), *probe.checks()]}
    assert "In a container" in checks["sandbox"].fix
    assert {checks[name].detail for name in ("cpu", "gfx942", "gfx1100")} == {"needs the sandbox"}


def test_unsafe_sessions_speak_the_same_protocol_without_secrets(monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    with (
        Zygote(preload=(), unsafe=True) as zygote,
        zygote.session(SERVICE, {}, limits=Limits(memory_mb=1024)) as session,
    ):
        seen = session.call("probe", {"read": [], "write": []}, timeout_s=30)[0]
        assert "API_KEY" not in seen["env"] and seen["core"] == 0
        session.call("lock", timeout_s=20)
        got = session.call("attempts", {"names": ["fork", "write", "socket"], "pid": 1}, timeout_s=20)[0]
        assert set(got.values()) == {"PermissionError"}


def test_a_missing_ro_path_is_named(tmp_path):
    with pytest.raises(InfrastructureError, match="nowhere"):
        run_tool(["/bin/true"], ro=[tmp_path / "nowhere"])


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root can become somebody else")
def test_an_ordinary_user_can_make_a_sandbox():
    command = bwrap.command(["/bin/sh", "-c", "id -u; ls /home /root"], ro=[], env={"PATH": "/usr/bin:/bin"})
    somebody = ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups", "--"]
    done = subprocess.run([*somebody, *command], capture_output=True, text=True, cwd="/")
    assert done.stdout == "65534\n" and "No such file" in done.stderr


def test_concurrent_sessions_and_tools():
    from concurrent.futures import ThreadPoolExecutor

    def one(zygote, number):
        with zygote.session(SERVICE, {"n": number}) as session:
            run_tool(["/bin/true"])
            return session.call("echo", timeout_s=30)[0]["init"]["n"]

    with Zygote(preload=(), ro=[HERE]) as zygote, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: one(zygote, n), range(24))) == list(range(24))
