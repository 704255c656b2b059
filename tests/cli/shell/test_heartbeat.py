"""What is said while nothing is printed: soon, cleared for the next output, with a time left only where it is known."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from hipwright.cli.display.heartbeat import Heartbeat, _Heard, describe_seconds
from hipwright.events import doing, observed
from tests.cli.cli_tools import EXAMPLES, FILES, environment
from tests.load import Watch

SILENT = 2.0


def test_the_line_says_what_how_much_and_how_long() -> None:
    beat = Heartbeat(io.StringIO(), drawn=True)
    begun = time.monotonic()
    beat.doing("compiling\x1b[2J", 0, 0)
    assert beat.line(begun + 12) in ("compiling\\x1b[2J, 12 s", "compiling\\x1b[2J, 11 s")
    beat.doing("judging", 0, 40)
    assert "left" not in beat.line(begun + 5), "no pace is known before the first is done"
    beat.doing("verifying the program", 0, 0)
    beat.doing("judging", 10, 40)
    line = beat.line(begun + 20)
    assert line.startswith("judging, 10 of 40, 20 s, about ") and line.endswith("left (verifying the program)")
    assert 55 <= int(line.split("about ")[1].split()[0]) <= 65, "30 at the pace of 10 in 20 s"
    beat.doing("judging", 40, 40)
    beat.doing("writing", 0, 0)
    assert beat.line(time.monotonic()).startswith("writing, ")


def test_the_next_output_clears_the_line() -> None:
    stream = io.StringIO()
    beat = Heartbeat(stream, drawn=True)
    beat.start()
    with observed(beat.doing):
        doing("thinking")
        deadline = time.monotonic() + 20
        while "... thinking" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        _Heard(stream, beat).write("result\n")
    beat.stop()
    assert "... thinking, " in stream.getvalue()
    assert stream.getvalue().rstrip("\r\x1b[K").endswith("\r\x1b[Kresult\n")


def test_nothing_is_drawn_beside_a_bar() -> None:
    stream = io.StringIO()
    beat = Heartbeat(stream, drawn=True)
    beat.start()
    with beat.covered():
        time.sleep(1.8)
    beat.stop()
    assert stream.getvalue() == ""


def test_doing_is_silent_without_a_display() -> None:
    doing("anything", 1, 2)
    assert [describe_seconds(value) for value in (12.4, 200, 5000)] == ["12 s", "3 min", "1 h 23 min"]


def gaps(home: Path, *args: object) -> tuple[int, list[float], str]:
    """(exit code, seconds between outputs, what was shown) of a command at a terminal of 80 columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = environment(home)
        env.pop("COLUMNS")
        os.chdir(home.parent)
        os.execve(sys.executable, [sys.executable, "-m", "hipwright", *map(str, args)], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    found, shown, last = [], b"", time.monotonic()
    while True:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:
                break
            now = time.monotonic()
            found.append(now - last)
            shown, last = shown + part, now
            if not part:
                break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, found, shown.decode(errors="replace")


LONG = {
    "doctor": ("doctor",),
    "optimize": ("optimize", EXAMPLES / "bias_gelu.py", "--budget", 2),
    "eval": ("eval", FILES / "scale.py", FILES / "good.py"),
    "model": ("model", EXAMPLES / "models" / "encoder.py", "--only-profile"),
    "bench": ("bench", EXAMPLES / "suite", "--budget", 1),
    "audit": ("audit", "--only", "honest/add*", "--gate", "full"),
    "export": ("export", FILES / "scale.py", FILES / "good.py", "--format", "torch-op", "--out", "package"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_no_command_is_silent_for_two_seconds(name: str, tmp_path: Path) -> None:
    with Watch() as watch:
        code, found, shown = gaps(tmp_path / "home", *LONG[name])
    assert code in (0, 1, 2), shown[-500:]
    assert max(found) / watch.load <= SILENT, (max(found), shown[-2000:])
    lines = shown.replace("\r", "\n").split("\n")
    assert "Traceback" not in shown and max(map(len, lines)) < 4000
