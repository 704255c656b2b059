"""SIGTERM and Ctrl-C at random moments: two seconds, the right exit code, one line, no process, a sound archive."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, FILES, environment, hipwright, left_behind, one_object

from hipwright import stopping

MOMENTS = random.Random()
COMMANDS = {
    "optimize": ("optimize", FILES / "scale.py", "--target", "cpu", "--budget", 60),
    "bench": ("bench", "{suite}", "--target", "cpu", "--budget", 9, "--out", "{out}"),
    "audit": ("audit", "--lane", "program", "--gate", "full"),
    "synth": ("synth", "--count", 500, "--out", "{out}"),
    "eval": ("eval", EXAMPLES / "layernorm_residual.py", EXAMPLES / "README.md", "--target", "cpu"),
}


def stopped(folder: Path, command: tuple[object, ...], number: int, after: float) -> tuple[int, float, str, str]:
    """(exit code, seconds from the signal to the end, stdout, stderr) of a command that got a signal."""
    (folder / "suite").mkdir(exist_ok=True)
    shutil.copy(EXAMPLES / "bias_gelu.py", folder / "suite")
    words = [str(word).format(suite=folder / "suite", out=folder / "out") for word in command]
    child = subprocess.Popen(
        [sys.executable, "-m", "hipwright", *words],
        env=environment(folder / "home"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(after)
    start = time.monotonic()
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    return child.returncode, time.monotonic() - start, out, err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_within_two_seconds(name: str, number: signal.Signals, tmp_path: Path) -> None:
    after = MOMENTS.uniform(0.8, 9)
    code, seconds, out, err = stopped(tmp_path, (*COMMANDS[name], "--json"), number, after)
    if code in (0, 1, 2):
        pytest.skip(f"it had finished after {after:.1f} s")
    assert code == 128 + number, f"after {after:.1f} s: {code}\n{err}"
    assert seconds < 2, f"after {after:.1f} s it needed {seconds:.1f} s"
    assert sum("interrupted" in line for line in err.splitlines()) == 1, err
    answer = one_object(out)
    assert answer.get("interrupted") is True and answer.get("exit_code", code) == code
    assert left_behind(tmp_path / "home", patience=0.5) == []
    if (tmp_path / "home" / "archive.sqlite").exists():
        check = hipwright(tmp_path / "home", "runs", "--check", "--json")
        assert check.returncode == 0 and one_object(check.stdout)["damaged"] == []


@pytest.mark.slow
def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    """The signal arrives while an evaluation is under way; the run then ends as if nothing had happened."""
    command = ("optimize", FILES / "scale.py", "--target", "cpu", "--budget", 6, "--seed", 3)
    home, after = tmp_path / "home", 6.0
    while True:
        code, _, _, err = stopped(tmp_path, command, signal.SIGTERM, after)
        runs = one_object(hipwright(home, "runs", "--json").stdout)["runs"]
        if runs or code == 0:
            break
        after += 2
    if runs[0]["status"] == "finished":
        pytest.skip("it had finished")
    assert code == 143 and runs[0]["status"] == "interrupted", err
    resumed = hipwright(home, "optimize", FILES / "scale.py", "--resume", "latest", "--json")
    result = one_object(resumed.stdout)
    assert resumed.returncode == 0 and result["evaluations"] == 6, resumed.stderr
    fresh = one_object(hipwright(tmp_path / "other", *command, "--json").stdout)
    assert result["program_key"] == fresh["program_key"]


def ends_within(pid: int, seconds: float) -> bool:
    """A killed process ends when it is next given a processor: on a busy machine not at once."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:  # the process's line is gone
            return True
        time.sleep(0.02)
    return False


STUBBORN = """
import subprocess, sys, threading
from hipwright.stopping import StopSignals, end_process
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(child.pid, flush=True)
with StopSignals(json_mode=sys.argv[1] == "json") as stop:
    while True:
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
"""


@pytest.mark.parametrize("mode", ["json", "text"])
@pytest.mark.parametrize("twice", [False, True])
def test_cleaning_up_that_never_ends_is_cut_off(mode: str, twice: bool) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, mode], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    sleeper, start = int(child.stdout.readline()), time.monotonic()
    time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    if twice:
        time.sleep(0.2)
        child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 143 and time.monotonic() - start < (1.2 if twice else 2.2)
    assert err.count("interrupted by SIGTERM") == 1
    assert out == "" if mode == "text" else json.loads(out) == stopping.interrupted_object(143)
    assert ends_within(sleeper, 5)


WRITERS = """
import os, signal, sys, time
from hipwright import stopping
from hipwright.cli.main import _interrupted

slow, late = float(sys.argv[1]), float(sys.argv[2])
write = os.write
os.write = lambda number, text: (time.sleep(slow), write(number, text))
with stopping.StopSignals(json_mode=True):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
    except KeyboardInterrupt:
        time.sleep(late)
        code = _interrupted(True)
        time.sleep(0.8)
        stopping.end_process(code)
"""


@pytest.mark.parametrize(("slow", "late"), [(0.3, stopping.GRACE_S + 0.1), (0, stopping.GRACE_S - 0.05), (0, 0)])
def test_one_alone_writes_the_last_word(slow: float, late: float) -> None:
    """The command's own answer and the end of its time come together: one line, one object."""
    ended = subprocess.run([sys.executable, "-c", WRITERS, str(slow), str(late)], capture_output=True, text=True)
    assert ended.returncode == 130
    assert len(ended.stderr.splitlines()) == 1 and "interrupted" in ended.stderr
    assert one_object(ended.stdout)["interrupted"] is True
