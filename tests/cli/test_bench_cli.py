"""`hipwright bench` on a small folder, on the cpu target: the engine's programs, candidates, a kill and a resume."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from cli_tools import EXAMPLES, environment, hipwright, left_behind, one_object

TASKS = ("bias_gelu", "transposed_add")
BASE = ("--target", "cpu", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    (folder / "suite" / "level1").mkdir(parents=True)
    for number, name in enumerate(TASKS, 1):
        shutil.copy(EXAMPLES / f"{name}.py", folder / "suite" / "level1" / f"{number}_{name}.py")
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    """A finished benchmark of the engine's own programs."""
    done = hipwright(folder / "home", "bench", folder / "suite", *BASE, "--budget", 1, "--out", folder / "engine")
    assert done.returncode == 0, done.stderr
    return one_object(done.stdout)


def test_the_engines_own_programs(folder, engine):
    assert engine["complete"] and engine["tasks"] == 2 and engine["source"] == "engine"
    assert (engine["compiled"]["count"], engine["correct"]["count"], engine["correct"]["total"]) == (2, 2, 2)
    assert engine["fast_p"] is None and "cpu target" in engine["why_none"]["fast_p"]
    assert engine["coverage"]["mean"] == 1.0
    assert any("nothing was timed" in line for line in engine["not_measured"])
    assert [row["task"] for row in engine["rows"]] == ["level1/1_bias_gelu", "level1/2_transposed_add"]
    left = {path.relative_to(folder / "engine").as_posix() for path in (folder / "engine").rglob("*.*")}
    assert {"bench.html", "result.json", "rows.csv", "rows.jsonl", "programs/level1/1_bias_gelu.py"} <= left
    assert json.loads((folder / "engine" / "result.json").read_text()) == engine
    table = list(csv.DictReader((folder / "engine" / "rows.csv").read_text().splitlines()))
    assert [row["status"] for row in table] == ["pass", "pass"]
    assert "1_bias_gelu" in (folder / "engine" / "bench.html").read_text()


def test_a_second_run_needs_resume_and_then_does_nothing(folder, engine):
    again = hipwright(folder / "home", "bench", folder / "suite", *BASE, "--budget", 1, "--out", folder / "engine")
    assert again.returncode == 2 and "--resume" in one_object(again.stdout)["hint"]
    rows = (folder / "engine" / "rows.jsonl").read_bytes()
    more = ("--budget", 1, "--out", folder / "engine", "--resume")
    resumed = hipwright(folder / "home", "bench", folder / "suite", *BASE, *more)
    assert resumed.returncode == 0 and "2 of 2 rows are there already" in resumed.stderr
    assert one_object(resumed.stdout)["rows"] == engine["rows"]
    assert (folder / "engine" / "rows.jsonl").read_bytes() == rows


def test_a_task_file_is_a_folder_of_one(folder):
    task = folder / "suite" / "level1" / "1_bias_gelu.py"
    done = hipwright(folder / "home", "bench", task, *BASE, "--budget", 1)
    report = one_object(done.stdout)
    assert done.returncode == 0 and [row["task"] for row in report["rows"]] == ["1_bias_gelu"]
    assert report["correct"]["count"] == 1
    levels = hipwright(folder / "home", "bench", task, *BASE, "--level", 1)
    assert levels.returncode == 2 and "has no levels" in levels.stdout
    missing = hipwright(folder / "home", "bench", folder / "suite" / "none.py", *BASE)
    assert missing.returncode == 2 and "no such folder" in missing.stdout


def test_candidates_right_wrong_broken_and_missing(folder, engine):
    given = folder / "given"
    given.mkdir()
    programs = folder / "engine" / "programs" / "level1"
    good = (programs / "1_bias_gelu.py").read_text()
    (given / "level_1_problem_1_sample_0_kernel.py").write_text(good)
    (given / "level_1_problem_1_sample_1_kernel.py").write_text(good.replace("HIP = r", "HIP = r", 1) + "\nimport os\n")
    (given / "notes.py").write_text("x = 1\n")
    done = hipwright(
        folder / "home", "bench", folder / "suite", *BASE, "--candidates", given, "--out", folder / "given-out"
    )
    assert done.returncode == 0, done.stderr
    found = one_object(done.stdout)
    assert "1 files belong to no task" in done.stderr and found["left_out"] == [str(given / "notes.py")]
    statuses = [(row["task"], row["sample"], row["status"]) for row in found["rows"]]
    assert statuses == [
        ("level1/1_bias_gelu", 0, "pass"),
        ("level1/1_bias_gelu", 1, "parse_error"),
        ("level1/2_transposed_add", 0, "missing"),
    ]
    assert found["correct"]["count"] == 1 and found["correct"]["total"] == 3 and found["compiled"]["count"] == 1
    assert [row["status"] for row in found["worst"]] == ["parse_error", "missing", "pass"]


def test_kernelbench_mode_has_both_verdicts(folder, engine):
    given = folder / "engine" / "programs"
    done = hipwright(
        folder / "home", "bench", folder / "suite", *BASE, "--candidates", given, "--mode", "kernelbench", "--level", 1
    )
    assert done.returncode == 0, done.stderr
    found = one_object(done.stdout)
    assert found["mode"] == "kernelbench" and found["correct"]["count"] == found["strict_correct"]["count"] == 2
    assert {row["strict"] for row in found["rows"]} == {"pass"}


def test_a_broken_task_is_not_judged_and_the_others_are(folder, engine, tmp_path):
    mixed = tmp_path / "suite"
    mixed.mkdir()
    (mixed / "a_broken.py").write_text("raise RuntimeError('no')\n")
    shutil.copy(EXAMPLES / "bias_gelu.py", mixed / "b_good.py")
    done = hipwright(tmp_path / "home", "bench", mixed, *BASE, "--budget", 1)
    found = one_object(done.stdout)
    assert done.returncode == 0 and found["not_judged"] == {"task": 1}
    assert found["rows"][0]["fault"] == "task" and found["rows"][0]["status"] == "unscorable"
    assert found["correct"]["total"] == 1, "a broken task is in no denominator"


def test_killed_and_resumed_nothing_is_lost_or_done_twice(folder, engine, tmp_path):
    out, home = tmp_path / "out", tmp_path / "home"
    suite = tmp_path / "suite"
    suite.mkdir()
    for name in (*TASKS, "cumsum_gate"):
        shutil.copy(EXAMPLES / f"{name}.py", suite / f"{name}.py")
    arguments = ["bench", suite, *BASE, "--budget", "1", "--workers", "1", "--out", out]
    command = [sys.executable, "-m", "hipwright", *map(str, arguments)]
    process = subprocess.Popen(
        command, env=environment(home), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    rows = out / "rows.jsonl"
    deadline = time.monotonic() + 120
    while not (rows.exists() and rows.read_bytes().count(b"\n") >= 1) and time.monotonic() < deadline:
        time.sleep(0.05)
    first = rows.read_bytes()
    process.send_signal(signal.SIGTERM)
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "nothing is lost" in errors and one_object(text)["complete"] is False
    assert left_behind(home) == []
    resumed = hipwright(home, *arguments, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    found = one_object(resumed.stdout)
    assert found["complete"] and [row["status"] for row in found["rows"]] == ["pass"] * 3
    assert rows.read_bytes().startswith(first)
    keys = [json.loads(line)["key"] for line in rows.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 3


@pytest.mark.parametrize(
    "arguments, say",
    [
        (("{none}",), "no such folder of tasks"),
        (("{suite}", "--level", "7"), "no level 7"),
        (("{suite}", "--candidates", "{none}"), "no such folder of candidates"),
        (("{suite}", "--gpus", "some"), "--gpus"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(folder, tmp_path, arguments, say):
    filled = [argument.format(none=tmp_path / "none", suite=folder / "suite") for argument in arguments]
    done = hipwright(tmp_path / "home", "bench", *filled, "--target", "cpu")
    assert done.returncode == 2 and say in done.stderr and done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2, done.stderr
