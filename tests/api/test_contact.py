"""`hipwright contact`: whole on a simulated GPU, and what becomes of steps that fail."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipwright.api.contact import ContactRequest, driver, programs, run_contact, timing, trials
from hipwright.api.contact.steps import StepFailed, Steps
from hipwright.errors import DeviceError
from hipwright.events import silent
from tests import warm
from tests.rocm import simulated

TASKS = Path(__file__).parents[1] / "rocm/tasks"
NAMES = (
    *("driver", "hiprtc", "hipcc", "clang", "runtime"),
    *("arguments", "bounds", "lds", "streams", "graphs", "events", "guards", "fault"),
    *("torch", "a/a", "ceilings", "programs"),
)


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated.made(tmp_path_factory.mktemp("rocm"))


@pytest.mark.slow
def test_a_whole_contact(rocm: Path, tmp_path: Path) -> None:
    env = {"ROCM_PATH": str(rocm), "HIPWRIGHT_HOME": str(tmp_path / "home")}
    words = ["contact", "--out", tmp_path, "--suite", TASKS, "--programs", 1, "--json"]
    done = warm.hipwright(tmp_path, *words, env=env)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"] and found["simulated"], [found["steps"], done.stderr]
    steps = {step["name"]: step for step in found["steps"]}
    assert tuple(steps) == NAMES and {step["status"] for step in steps.values()} == {"ok"}
    assert steps["fault"]["facts"]["reported"] == "by ending the process"
    assert steps["lds"]["facts"]["largest_bytes"] == 64 << 10 and steps["guards"]["facts"]["found_at"] == 1000
    assert steps["runtime"]["facts"] == {"hiprtc": "runs", "hipcc": "runs", "trials_use": "hiprtc"}
    itself = steps["a/a"]["facts"]
    assert itself["low"] < itself["high"] and itself["judged"] == "no: these are the processor's times"
    assert steps["ceilings"]["facts"]["copy"] > 1e8 and "copy_of_datasheet" not in steps["ceilings"]["facts"]
    (row,) = found["rows"]
    assert (row["task"], row["status"], row["device"]) == ("twice", "pass", "gfx942 (simulated)")
    with tarfile.open(found["archive"]) as archive:
        names = [Path(name).name for name in archive.getnames()]
        kept = json.load(archive.extractfile(next(n for n in archive.getnames() if n.endswith("results.json"))))  # type: ignore[arg-type]
    assert names[:3] == ["results.json", "page.html", "00-driver.txt"] and len(names) == 2 + len(NAMES)
    assert kept["rows"] == found["rows"] and kept["steps"] == found["steps"]
    page = Path(found["page"]).read_text()
    assert "SIMULATED" in page and "MEASURED" not in page and "all steps passed" in page


def test_without_a_gpu_it_is_one_line(tmp_path: Path) -> None:
    if Path("/sys/module/amdgpu").exists():
        pytest.skip("this machine has AMD's driver")
    done = warm.hipwright(tmp_path, "contact", "--out", tmp_path, env={"ROCM_PATH": ""})
    assert done.returncode == 3 and done.stdout == ""
    first, hint = done.stderr.strip().splitlines()
    assert first == "error: device: no AMD GPU: the amdgpu driver is not loaded" and "modprobe amdgpu" in hint
    assert not list(tmp_path.glob("hipwright-contact*"))
    said = json.loads(warm.hipwright(tmp_path, "contact", "--json", env={"ROCM_PATH": ""}).stdout)
    assert said["fault"] == "device" and said["hint"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((), "driver is not loaded"),
        (("sys/module/amdgpu",), "no /dev/kfd"),
        (("sys/module/amdgpu", "dev/kfd"), "lists none"),
    ],
)
def test_what_a_machine_lacks_is_said(tmp_path: Path, made: tuple[str, ...], said: str) -> None:
    for name in made:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DeviceError, match=said) as caught:
        driver.find_gpu(None, dev=tmp_path / "dev", sys=tmp_path / "sys")
    assert caught.value.hint


@contextmanager
def _no_torch(gpu: int, *, unsafe: bool) -> Iterator[Any]:
    raise DeviceError("torch sees no GPU", hint="install the torch build for ROCm")
    yield


def test_failing_steps_say_what_to_do_and_the_others_go_on(
    rocm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(simulated.made(tmp_path / "rocm")))
    (tmp_path / "rocm/lib/libhiprtc.so").unlink()
    (tmp_path / "rocm/bin/hipcc").write_text("#!/bin/sh\necho 'kernel.hip:1:1: error: no' >&2\nexit 1\n")
    monkeypatch.setattr(timing, "opened", _no_torch)
    monkeypatch.setattr(driver, "driver_facts", lambda gpu: {})
    request = ContactRequest(out=tmp_path / "out", suite=TASKS, minutes=0.1)  # no time for programs
    report = run_contact(request)
    found = {step.name: step for step in report.steps}
    assert tuple(found) == NAMES and not report.ok
    status = {name: step.status for name, step in found.items()}
    assert [status[name] for name in ("driver", "hiprtc", "hipcc", "clang")] == ["ok", "failed", "failed", "ok"]
    assert "hipRTC is not on this machine" in found["hiprtc"].message and "install ROCm" in found["hiprtc"].hint
    assert "refuses the trial kernels: kernel.hip:1:1: error: no" in found["hipcc"].message
    assert status["runtime"] == "failed" and found["runtime"].message == "no route built a code object"
    assert {status[name] for name in trials.trials.TRIALS} == {"skipped"} and "runtime failed" in found["lds"].message
    assert (found["torch"].message, status["a/a"], status["ceilings"]) == ("torch sees no GPU", "skipped", "skipped")
    assert status["programs"] == "failed" and "no time is left" in found["programs"].message
    assert all(step.hint for step in report.steps if step.status != "ok")
    page = Path(report.page).read_text()
    assert "What to do next" in page and "install the torch build for ROCm" in page


def test_a_step_that_another_needs() -> None:
    steps = Steps(silent)

    def fails() -> dict[str, Any]:
        raise StepFailed("broken", output="its log", facts={"a": 1})

    steps.run("one", "the first", fails)
    steps.run("two", "the second", lambda: {"b": 2, "output": "text"}, needs=("one",))
    steps.run("three", "the third", lambda: {"b": 2, "output": "text"})
    one, two, three = steps.done
    assert (one.status, one.message, one.output, one.facts) == ("failed", "broken", "its log", {"a": 1}) and one.hint
    assert (two.status, two.message) == ("skipped", "the step one failed")
    assert (three.status, three.facts, three.output) == ("ok", {"b": 2}, "text")


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "reported"),
    [
        (-6, "", "Memory access fault by GPU node-1 on address 0x7f00. Reason: Unknown.", "by ending the process"),
        (1, '{"ok": false, "status": "out_of_bounds", "error": "illegal"}', "", "by an error code"),
        (1, '{"ok": false, "status": "", "error": "went unnoticed"}', "", None),
        (-11, "", "Segmentation fault", None),
    ],
)
def test_how_a_fault_is_told(
    monkeypatch: pytest.MonkeyPatch, code: int, stdout: str, stderr: str, reported: str | None
) -> None:
    done = subprocess.CompletedProcess([], code, stdout, stderr)
    monkeypatch.setattr(trials, "_process", lambda name, index, path: done)
    if reported is not None:
        assert trials.run_trial("fault", 0, Path("code"))["reported"] == reported
        return
    with pytest.raises(StepFailed, match=r"went unnoticed|ended with -11"):
        trials.run_trial("fault", 0, Path("code"))


def test_tasks_of_each_family_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    names = [task.name for task in programs.choose(30)]
    assert len(names) == 30 and len({name.partition("/")[0] for name in names}) == 20
    monkeypatch.chdir(tmp_path)  # where there is no suite
    own = programs.choose(1000)
    assert 30 <= len(own) < 1000 and all(task.path.is_file() for task in own)
