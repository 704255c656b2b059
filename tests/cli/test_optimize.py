"""`optimize` end to end: its files, its stdout, and that Ctrl-C loses nothing."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import FILES, environment, hipwright, left_behind, one_object, process

from hipwright.archive import Archive, read_log

pytestmark = pytest.mark.slow
TASK = FILES / "scale.py"
KEYS = {"status", "fault", "coverage", "program", "evaluations", "seconds", "targets", "not_measured", "library"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, object]]:
    """One finished run: its archive, its output folder, its result object."""
    folder = tmp_path_factory.mktemp("run")
    home, out = folder / "home", folder / "out"
    done = process(home, "optimize", TASK, "--budget", 3, "--seed", 5, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    return home, out, one_object(done.stdout)


def test_the_result_keeps_its_contract(finished: tuple[Path, Path, dict[str, object]]) -> None:
    home, _, result = finished
    assert set(result) >= KEYS
    assert result["status"] == "pass" and result["fault"] is None and result["evaluations"] == 3
    assert 0 < float(str(result["coverage"])) <= 1
    targets = result["targets"]
    assert isinstance(targets, dict) and list(targets) == ["gfx942", "gfx950", "cpu"]
    for name, target in targets.items():
        assert set(target) == {"build", "verdict", "estimate", "timing", "why_none"}
        for part in ("build", "verdict", "estimate", "timing"):
            assert target[part] is not None or target["why_none"][part], f"{name}: no {part}, and no reason"
        assert target["timing"] is None, "nothing can be timed here"
    assert targets["cpu"]["verdict"]["status"] == "pass"
    gained = {one["target"]: one for one in result["gain"]}  # type: ignore[attr-defined]
    assert set(gained) == {"gfx942", "gfx950"} and {one["kind"] for one in gained.values()} == {"estimate"}
    for name, one in gained.items():
        assert one["program_us"] == targets[name]["estimate"]["microseconds"] and one["baseline_us"] > 0
    assert result["fused"], "the engine names what its kernels stand for"
    assert left_behind(home) == []


def test_the_folder_holds_four_files(finished: tuple[Path, Path, dict[str, object]]) -> None:
    _, out, result = finished
    assert {p.name for p in out.iterdir()} == {"program.py", "model_new.py", "result.json", "report.html"}
    assert json.loads((out / "result.json").read_text()) == result
    assert Path(str(result["program"])).read_text() == (out / "program.py").read_text()
    compile((out / "model_new.py").read_text(), "model_new.py", "exec")
    report = (out / "report.html").read_text()
    assert "<script" not in report and "ESTIMATE" in report and "was not measured" in report


def test_rows_for_training_come_out_of_a_run(finished: tuple[Path, Path, dict[str, object]]) -> None:
    home, _, _ = finished
    rows = one_object(hipwright(home, "export", "latest", "--records", "sft", "--json").stdout)["rows"]
    assert rows and all(row["labels"]["correct"] for row in rows)
    assert hipwright(home, "export", "latest", "--records", "sft", "--canonical").returncode == 2


def test_the_program_passes_again(finished: tuple[Path, Path, dict[str, object]]) -> None:
    home, out, _ = finished
    done = hipwright(home, "eval", TASK, out / "program.py", "--json")
    assert done.returncode == 0, done.stdout
    assert one_object(done.stdout)["status"] == "pass"


def test_the_archive_can_be_read(finished: tuple[Path, Path, dict[str, object]]) -> None:
    home, _, result = finished
    run = str(result["run"])
    listed = one_object(hipwright(home, "runs", "--json").stdout)
    assert isinstance(listed["runs"], list) and listed["runs"][0]["id"] == run
    shown = one_object(hipwright(home, "show", run[:-1], "--json").stdout)
    assert len(shown["trials"]) >= 3 and shown["summary"]["status"] == "finished"
    for args in (("runs",), ("show", "latest"), ("compare", run, "latest")):
        done = hipwright(home, *args)
        assert done.returncode == 0 and run in done.stdout, done.stderr
    same = one_object(hipwright(home, "compare", run, "latest", "--json").stdout)
    assert same["same_task"] is True and same["diff"] == []
    lines = hipwright(home, "export", run).stdout.splitlines()
    assert all(json.loads(line) for line in lines)
    wrapped = one_object(hipwright(home, "export", run, "--json").stdout)
    assert wrapped["events"] == [json.loads(line) for line in lines]


def test_a_finished_run_resumes_to_the_same_result(finished: tuple[Path, Path, dict[str, object]]) -> None:
    home, _, result = finished
    done = hipwright(home, "optimize", TASK, "--resume", "latest", "--json")
    assert done.returncode == 0, done.stderr
    again = one_object(done.stdout)
    assert again["run"] == result["run"] and again["evaluations"] == result["evaluations"]
    other = hipwright(home, "optimize", TASK, "--resume", "latest", "--seed", 6)
    assert other.returncode == 2 and "--seed" in other.stderr
    changed = hipwright(home, "optimize", FILES.parents[1] / "examples" / "bias_gelu.py", "--resume", "latest")
    assert changed.returncode == 2 and "another task" in changed.stderr


def test_resume_needs_no_task_file(finished: tuple[Path, Path, dict[str, object]], tmp_path: Path) -> None:
    home, _, result = finished
    done = hipwright(home, "resume", str(result["run"])[:20], "--json", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    again = one_object(done.stdout)
    assert again["run"] == result["run"] and again["program_key"] == result["program_key"]
    assert (tmp_path / "again/report.html").exists()
    for run, why in (("no-such-run", "no run"), ("", "no run")):
        wrong = hipwright(home, "resume", run)
        assert wrong.returncode == 2 and why in wrong.stderr and len(wrong.stderr.strip().splitlines()) <= 2
    assert hipwright(tmp_path / "nothing", "resume", "latest").returncode == 2


def test_ctrl_c_keeps_everything_and_says_how_to_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    args = ["optimize", str(TASK), "--budget", "8", "--seed", "1", "--out", str(tmp_path / "out")]
    child = subprocess.Popen(
        [sys.executable, "-m", "hipwright", *args],
        env=environment(home),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not evaluated(home) and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, messages = child.communicate(timeout=120)
    assert child.returncode == 130, messages
    done = evaluated(home)
    assert 0 < done < 8
    assert left_behind(home) == []

    line = next(line for line in messages.splitlines() if "hipwright resume" in line)
    arguments = shlex.split(line[line.index("hipwright resume") :])
    resumed = hipwright(home, *arguments[1:], "--json")
    assert resumed.returncode == 0, resumed.stderr
    result = one_object(resumed.stdout)
    assert result["evaluations"] == 8 and evaluated(home) == 8


def evaluated(home: Path) -> int:
    if not (home / "archive.sqlite").exists():
        return 0
    with Archive(home, create=False) as archive:
        runs = archive.runs()
        return len(read_log(archive.events(runs[-1].id)).evaluated) if runs else 0
