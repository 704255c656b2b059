"""Processes that drive a GPU: what they can access and call, and how hostile host code in them ends.

No GPU is needed: the visible nodes are those of another device of this machine.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from contained import HERE, SERVICE

from hipwright.errors import DeviceError
from hipwright.sandbox import (
    GpuAccess,
    Limits,
    OneShotPool,
    RemoteFailure,
    WorkerDied,
    WorkerFlood,
    WorkerTimeout,
    Zygote,
    gpu_count,
)
from hipwright.sandbox.cgroup import TaskGroup
from hipwright.sandbox.gpu.nvidia import gpu_nodes
from hipwright.sandbox.zygote_process import count_tasks
from hipwright.targets import CUDA, ROCM
from tests.load import Watch

NODE = Path("/dev/fuse")
needs_node = pytest.mark.skipif(not NODE.exists(), reason="this machine has no /dev/fuse to stand for a GPU")


@dataclass(frozen=True)
class FakeGpu(GpuAccess):
    """A device that every machine has, in place of a GPU's nodes."""

    def nodes(self):
        return [NODE] if NODE.exists() else []


def fake_zygote(**options):
    return Zygote((), ro=[HERE], gpu=FakeGpu(CUDA, 3), name="gpu worker", **options)


@pytest.fixture(scope="module")
def gpu_zygote():
    with fake_zygote(tmp_mb=64, threads=4) as it:
        yield it


# ---------------------------------------------------------------- what it sees


def test_processes_are_counted_once_for_all_who_wait(monkeypatch):
    """Each count reads /proc thread by thread; a dozen sessions of one zygote wait at a time."""
    counted = []
    monkeypatch.setattr("hipwright.sandbox.zygote.count_tasks", lambda pid, enough: counted.append(pid) or enough + 1)
    zygote = fake_zygote()
    zygote._process = type("ZygoteProcess", (), {"pid": 1, "end": lambda self: None})()
    assert [zygote.flooded() > 0 for _ in range(5)] == [True, False, False, False, False] and counted == [1]
    zygote._counted_at -= 1.0
    assert zygote.flooded() > 0


@needs_node
def test_the_chosen_node_and_settings_are_inside_and_nothing_else(gpu_zygote, monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    with gpu_zygote.session(SERVICE, {}) as session:
        read = [str(NODE), "/dev/kmsg", "/dev/vda", "/sys/devices", "/root"]
        seen = session.call("probe", {"read": read, "write": ["/sys/x", "/dev/x"]}, timeout_s=30)[0]
    assert "/sys/devices" in seen["readable"]
    assert not {"/dev/kmsg", "/dev/vda"} & set(seen["readable"]) and seen["writable"] == []
    env = seen["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "0", "its node is the only one inside"
    assert env["OMP_NUM_THREADS"] == "4" and env["TRITON_CACHE_DIR"].startswith("/tmp/")
    assert "API_KEY" not in env and seen["network"] != "connected"


def test_of_proc_only_a_process_own_folder_is_writable(gpu_zygote):
    with gpu_zygote.session(SERVICE, {}) as session:
        found = session.call("writable_proc", timeout_s=60)[0]
    assert found["others"] == [], "started by root, these would be the machine's own settings"
    assert "comm" in found["own"], "NVIDIA's driver writes there"


@needs_node
def test_the_node_can_be_used_as_a_device(gpu_zygote):
    command = gpu_zygote._command(3)
    assert command[command.index("--dev-bind") + 1] == str(NODE)
    assert command.index("--dev-bind") < len(command) - command[::-1].index("--remount-ro")


def test_a_gpu_that_is_not_there_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("hipwright.sandbox.gpu.nvidia.gpu_nodes", lambda dev: [])
    with Zygote((), gpu=GpuAccess(CUDA, 0), name="w") as zygote, pytest.raises(DeviceError, match="no cuda GPU 0"):
        zygote.session(SERVICE, {})
    if not Path("/dev/kfd").exists():
        with pytest.raises(DeviceError, match="no rocm GPU 2"):
            GpuAccess(ROCM, 2).nodes()


def test_gpus_are_counted_by_their_nodes(tmp_path):
    for name in ("nvidia10", "nvidia2", "nvidia-uvm", "nvidiactl", "nvidia0"):
        (tmp_path / name).touch()
    assert [path.name for path in gpu_nodes(tmp_path)] == ["nvidia0", "nvidia2", "nvidia10"]
    assert gpu_count(CUDA, dev=tmp_path) == 3 and gpu_count(ROCM, dev=tmp_path) == 0
    (tmp_path / "kfd").touch()
    for number, simds in enumerate((0, 304, 304)):  # the first node of a topology is the CPU
        node = tmp_path / f"class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\n")
    assert gpu_count(ROCM, dev=tmp_path, sys=tmp_path) == 2


def test_only_driver_folders_of_the_library_path_are_shown(monkeypatch, tmp_path):
    driver, secret = tmp_path / "driver", tmp_path / "secret"
    driver.mkdir()
    secret.mkdir()
    (driver / "libcuda.so.1").touch()
    (secret / "libsecret.so").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{secret}:{driver}:relative:{tmp_path / 'none'}")
    access = GpuAccess(CUDA)
    assert access.libraries() == [driver] and secret not in access.paths() and driver in access.paths()
    assert access.environment()["LD_LIBRARY_PATH"] == str(driver)


def test_outside_a_sandbox_the_number_itself_chooses():
    assert GpuAccess(CUDA, 3).environment(contained=False)["CUDA_VISIBLE_DEVICES"] == "3"
    assert GpuAccess(ROCM, 3).environment()["HIP_VISIBLE_DEVICES"] == "3"


# ---------------------------------------------------------------- what it may call


def test_gpu_profile_has_threads_and_files_but_no_processes_or_sockets(gpu_zygote):
    with gpu_zygote.session(SERVICE, {}) as neighbour, gpu_zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": "gpu"}, timeout_s=20)
        names = ["socket", "netlink", "fork", "exec", "kill", "memory", "environ", "compile", "namespace", "move_pages"]
        got = session.call("attempts", {"names": names, "pid": neighbour._pid}, timeout_s=60)[0]
        assert {name: said for name, said in got.items() if said in ("done", "True")} == {}
        fine = session.call("attempts", {"names": ["write", "thread", "memfd", "unix"]}, timeout_s=60)[0]
        assert set(fine.values()) == {"done"}
        assert neighbour.call("echo", timeout_s=20)


def test_tools_profile_compiles_and_runs_but_has_no_socket_or_namespace(gpu_zygote):
    with gpu_zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": "tools"}, timeout_s=20)
        got = session.call("attempts", {"names": ["compile", "thread", "write"]}, timeout_s=120)[0]
        assert got == {"compile": "True", "thread": "done", "write": "done"}
        refused = session.call("attempts", {"names": ["socket", "netlink", "namespace", "move_pages"]}, timeout_s=20)[0]
        assert set(refused.values()) == {"PermissionError"}


@pytest.mark.parametrize("profile", ["gpu", "tools"])
def test_ptrace_is_fatal(gpu_zygote, profile):
    with gpu_zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": profile}, timeout_s=20)
        with pytest.raises(WorkerDied, match="SIGSYS"):
            session.call("attack", timeout_s=20)


# ---------------------------------------------------------------- how hostile code ends

LIMIT, GRACE = 3.0, 5.0  # seconds
HOSTILE = {
    "flood": ({"s": 60}, WorkerTimeout),
    "sleep": ({"s": 60}, WorkerTimeout),
    "spin": ({}, WorkerTimeout),
    "thread_bomb": ({}, WorkerFlood),
    "fill_tmp": ({"mb": 1 << 20}, RemoteFailure),
    "eat": ({}, RemoteFailure),
    "fork_bomb": ({}, RemoteFailure),
    "segfault": ({}, WorkerDied),
}


@pytest.mark.parametrize("method", HOSTILE)
def test_hostile_code_ends_in_time_and_the_service_lives(gpu_zygote, method):
    header, failure = HOSTILE[method]
    limits = Limits(memory_mb=1024)
    # processes that end by themselves may take longer on a busy machine
    limit = LIMIT if failure is WorkerTimeout else 20.0
    with gpu_zygote.session(SERVICE, {}, limits=limits) as session:
        session.call("lock", {"profile": "gpu"}, timeout_s=20)
        with Watch() as watch, pytest.raises(failure) as caught:
            session.call(method, header, timeout_s=limit)
        assert watch.seconds < limit + GRACE
        assert type(caught.value) is failure
    if method == "fill_tmp":
        assert "No space left" in str(caught.value)
    with gpu_zygote.session(SERVICE, {}) as after:
        assert after.call("echo", {"x": 1}, timeout_s=20)[0]["x"] == 1


@pytest.mark.parametrize("kernel_limit", [True, False])
def test_a_fork_bomb_among_allowed_processes_is_seen_and_killed(monkeypatch, kernel_limit):
    """The tools profile may fork, and RLIMIT_NPROC does not limit root: a control group or the parent's count does."""
    if not kernel_limit:
        monkeypatch.setattr("hipwright.sandbox.cgroup._bases", lambda proc, root: [])
    with fake_zygote() as zygote:
        session = zygote.session(SERVICE, {})
        session.call("lock", {"profile": "tools"}, timeout_s=20)
        root = zygote._process.pid
        with Watch() as watch, pytest.raises(WorkerDied) as caught:
            session.call("bomb", {"doublings": 11}, timeout_s=20)
        assert watch.seconds < 20 + GRACE and not session.alive
        assert isinstance(caught.value, WorkerFlood) and caught.value.evidence["tasks"] > 1000
        assert "threads and processes" in str(caught.value)
        assert count_tasks(root, 10) <= 1, "nothing of it is left"
        with zygote.session(SERVICE, {}) as after:
            assert after.call("echo", {"x": 1}, timeout_s=20)[0]["x"] == 1


def test_the_task_group_holds_root_and_leaves_nothing(tmp_path):
    group = TaskGroup(5)
    if not group.limited:
        pytest.skip("this system does not let us make a pids control group")
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; wait"
    done = subprocess.run(group.wrap(["/bin/sh", "-c", script]), capture_output=True, text=True, timeout=60)
    folder = group._folder
    group.remove()
    assert done.returncode != 0 and "fork" in done.stderr.lower() and not folder.exists()


def test_without_control_groups_there_is_none(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("8:pids:/here\n0::/\n")
    (tmp_path / "pids/here").mkdir(parents=True)
    group = TaskGroup(5, proc=tmp_path, root=tmp_path)
    assert not group.limited and group.wrap(["x"]) == ["x"]
    assert list((tmp_path / "pids/here").iterdir()) == [], "a folder without the kernel's files is no control group"


@pytest.mark.parametrize("profile", ["gpu"])
def test_parent_and_neighbours_cannot_be_killed(gpu_zygote, profile):
    with gpu_zygote.session(SERVICE, {}) as neighbour, gpu_zygote.session(SERVICE, {}) as session:
        session.call("lock", {"profile": profile}, timeout_s=20)
        assert session.call("kill_around", timeout_s=20)[0]["done"] == []
        assert neighbour.call("echo", timeout_s=20)


# ---------------------------------------------------------------- used once


def test_one_shot_zygotes_share_nothing_and_are_ready():
    made = []

    def make():
        made.append(fake_zygote())
        return made[-1]

    with OneShotPool(make, ready=2) as pool:
        used = []
        for _ in range(4):
            with pool.take() as zygote, zygote.session(SERVICE, {}) as session:
                used.append(zygote)
                assert session.call("leave_mark", timeout_s=20)[0]["found"] is False
        assert len(set(map(id, used))) == 4, "each is used once"
        with pool.take() as zygote, zygote.session(SERVICE, {}) as first, zygote.session(SERVICE, {}) as second:
            assert first.call("leave_mark", timeout_s=20)[0]["found"] is False
            assert second.call("leave_mark", timeout_s=20)[0]["found"] is True, "one zygote is one /tmp"
    assert all(zygote._control is None for zygote in made), "nothing is left running"
