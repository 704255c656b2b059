"""An archive that cannot be written is read by every reading command, and refused in one line by those that write.

Real conditions: a read-only mount, and permission bits without the capability to override them, both by bubblewrap.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from archive_contract import a_run, evaluated, program, proposed

from hipwright.archive import Archive, LogEntry

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

READ = """
import json, os, sys
from hipwright.cli.main import main
for words in json.loads(sys.argv[1]):
    print(">", main(words), flush=True)
"""
COMMANDS = [
    ["runs", "--json"],
    ["runs", "--check"],
    ["show", "latest"],
    ["compare", "r1", "r1"],
    ["export", "r1", "--canonical"],
]
WRITE = """
import sys
from pathlib import Path
from hipwright.archive import Archive
from hipwright.errors import HipwrightError
from hipwright.records import Run
with Archive(Path(sys.argv[1]), create=False) as archive:
    run = archive.run("r1")
    for write in (lambda: archive.append("r1", "note"), lambda: archive.lock("r1").__enter__()):
        try:
            write()
        except HipwrightError as error:
            print(error.exit_code, error.message, error.hint, sep="|")
try:
    Archive(Path(sys.argv[1]))
except HipwrightError as error:
    print(error.exit_code, error.message, error.hint, sep="|")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Archive(tmp_path / "home") as archive:
        archive.begin_run(a_run(), {"task_name": "scale"})
        archive.append_all("r1", [LogEntry("proposed", 0, proposed(0).to_dict()), evaluated(0)], [program(0)])
    return tmp_path / "home"


def contained(kind: str, home: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script where `home` cannot be written: on a read-only mount, or by its permission bits."""
    ways = {"mount": ["--ro-bind", str(home), str(home)], "mode": ["--cap-drop", "ALL"]}
    command = ["bwrap", "--dev-bind", "/", "/", *ways[kind], sys.executable, "-c", script, *arguments]
    environment = {**os.environ, "HIPWRIGHT_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    if kind == "mode":
        for path in (*home.iterdir(), home):
            path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    finally:
        for path in (home, *home.iterdir()):
            path.chmod(0o755)


def killed_writer(home: Path) -> None:
    """Leaves a WAL with a committed run, as a writer does that is killed."""
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom hipwright.archive import Archive\n"
        "from hipwright.records import Run\narchive = Archive(Path(sys.argv[1]))\n"
        "archive.begin_run(Run(id='r2', task='t', targets=(), budget=1, policy='p', seed=0))\nos._exit(9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, str(home)], env=environment)
    (home / "archive.sqlite-shm").unlink()
    assert (home / "archive.sqlite-wal").stat().st_size > 0


@pytest.mark.parametrize("kind", ["mount", "mode"])
@pytest.mark.parametrize("state", ["closed", "killed", "live"])
def test_every_reading_command_reads_it(kind: str, state: str, home: Path) -> None:
    live = Archive(home) if state == "live" else None
    if live is not None:
        live.begin_run(a_run("r2"))
    if state == "killed":
        killed_writer(home)
    before = (home / "archive.sqlite").read_bytes()
    done = contained(kind, home, READ, json.dumps(COMMANDS))
    if live is not None:
        live.close()
    codes = [line for line in done.stdout.splitlines() if line.startswith("> ")]
    assert codes == ["> 0"] * len(COMMANDS), done.stdout[-2000:] + done.stderr
    listed, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert [one["id"] for one in listed["runs"]] == (["r1"] if state == "closed" else ["r2", "r1"])
    assert "every row can be read" in done.stdout
    if state != "live":
        assert (home / "archive.sqlite").read_bytes() == before


@pytest.mark.parametrize("kind", ["mount", "mode"])
def test_writing_is_refused_in_one_line(kind: str, home: Path) -> None:
    done = contained(kind, home, WRITE, str(home))
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout + done.stderr
    for line in lines:
        code, message, hint = line.split("|")
        assert code == "2" and str(home) in message and "read-only" in message and "HIPWRIGHT_HOME" in hint
