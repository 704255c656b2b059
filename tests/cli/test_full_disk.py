"""A full disk: one line that names the path, exit 3, and nothing lost that was stored before.

The disk is real: a tmpfs of a few KiB, mounted by bubblewrap.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, environment, hipwright

from hipwright.disk import file_error, is_full, naming

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")


def on_a_small_disk(disk: Path, size: int, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with `disk` on a file system of `size` bytes."""
    disk.mkdir(exist_ok=True)
    words = ["bwrap", "--dev-bind", "/", "/", "--size", str(size), "--tmpfs", str(disk), *map(str, command)]
    env = {**environment(disk.parent / "home"), "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(words, env=env, cwd=disk.parent, capture_output=True, text=True, timeout=120)


STORES = """
import sys
from pathlib import Path
from hipwright.api.files import write_file
from hipwright.archive import Archive
from hipwright.dataset.store import append_durably
from hipwright.evaluation.bench import RowStore, missing_row
from hipwright.records import Run
from hipwright.toolchain.cache import BuildCache
kind, disk = sys.argv[1], Path(sys.argv[2])
many = range(10_000)
try:
    if kind == "archive":
        with Archive(disk) as archive:
            archive.begin_run(Run(id="r", task="t", targets=(), budget=1, policy="p", seed=0))
            for number in many:
                archive.append("r", "note", number, {"text": "x" * 1000})
                stored = number
    elif kind == "rows":
        rows = RowStore(disk)
        for number in many:
            rows.add(missing_row(key=str(number), task="t"))
            stored = number
    elif kind == "cache":
        for number in many:
            BuildCache(disk).put(str(number).encode() * 1000)
    elif kind == "file":
        write_file(disk / "report.html", "x" * 1_000_000)
    elif kind == "lines":
        for number in many:
            append_durably(disk / "pairs.jsonl", b"x" * 1000)
except Exception as error:
    from hipwright.cli.main import _unexpected
    from hipwright.errors import HipwrightError
    from hipwright.cli.main import _report
    code = _report(error, False) if isinstance(error, HipwrightError) else _unexpected(error, [str(disk)])
    print("exit", code)
    if kind == "archive":  # what was stored is there
        with Archive(disk, create=False) as archive:
            assert [event.number for event in archive.events("r")][1:] == list(range(stored + 1))
    if kind == "rows":
        assert len(RowStore(disk).rows) == stored + 1
    assert not list(disk.rglob(".*new*")) and not list(disk.glob(".report*"))
"""


@needs_bwrap
@pytest.mark.parametrize("kind", ["archive", "rows", "cache", "file", "lines"])
def test_a_store_on_a_full_disk_names_its_path_and_keeps_what_it_has(kind: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    done = on_a_small_disk(disk, 262144, sys.executable, "-c", STORES, kind, disk)
    assert done.returncode == 0 and "exit 3" in done.stdout, done.stderr
    error, hint = done.stderr.strip().splitlines()
    assert error.startswith("error: hipwright: ") and str(disk) in error and hint.startswith("hint: ")
    assert "space" in error + hint or "full" in error


@needs_bwrap
def test_a_command_with_json_says_it_as_an_object(tmp_path: Path) -> None:
    home, disk = tmp_path / "home", tmp_path / "disk"
    done = hipwright(home, "optimize", EXAMPLES / "bias_gelu.py", "--target", "cpu", "--budget", 1)
    assert done.returncode == 0, done.stderr
    command = (sys.executable, "-m", "hipwright", "export", "latest", "--out", disk / "run.jsonl", "--json")
    done = on_a_small_disk(disk, 4096, *command)
    answer = json.loads(done.stdout)
    assert done.returncode == 3 == answer["exit_code"] and str(disk / "run.jsonl") in answer["error"]


@needs_bwrap
def test_a_compiler_on_a_full_disk_is_not_the_programs_fault(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom hipwright.errors import InfrastructureError\nfrom hipwright.sandbox.tool import run_tool\n"
        "command = ['/bin/sh', '-c', 'head -c 900000 /dev/zero > out || exit 1']\n"
        "try:\n    run_tool(command, unsafe=True)\nexcept InfrastructureError as error:\n"
        "    print(error.fault, error.message)\n"
    )
    disk = tmp_path / "disk"
    shm = ("--size", "65536", "--tmpfs", "/dev/shm")
    done = on_a_small_disk(disk, 262144, *shm, sys.executable, "-c", script, TMPDIR=str(disk))
    assert done.stdout.startswith("service ") and f"no space left in {disk}" in done.stdout, done.stderr


def test_an_error_without_a_path_gets_one() -> None:
    with pytest.raises(OSError, match="here") as raised, naming("/here"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "/here" in file_error(raised.value, []).message
    with pytest.raises(OSError, match="there"), naming("/here"):
        raise OSError(errno.ENOSPC, "No space left on device", "/there")
    assert not is_full("/") and "denied" in file_error(PermissionError(errno.EACCES, "denied", "x"), []).message
    assert "a file or stdout" in file_error(OSError(errno.ENOSPC, "No space left on device"), ["/"]).message
