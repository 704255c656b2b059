"""Tools: their inputs and their outputs."""

import tempfile
from pathlib import Path

import pytest
from contained import open_files

from hipwright.sandbox import Limits, run_tool
from tests.load import Watch

SH = ("/bin/sh", "-c")


@pytest.mark.parametrize("unsafe", [False, True])
def test_files_in_outputs_and_text_out(unsafe):
    got = run_tool(
        [*SH, "cat a/in.txt > out.bin; mkdir d; echo 2 > d/deep; echo said; echo bad >&2; exit 3"],
        files={"a/in.txt": b"\0\1"},
        outputs=["out.bin", "d/deep", "missing"],
        unsafe=unsafe,
    )
    assert (got.returncode, got.stdout, got.stderr, got.timed_out) == (3, "said\n", "bad\n", False)
    assert got.files == {"out.bin": b"\0\1", "d/deep": b"2\n"}


@pytest.mark.parametrize("unsafe", [False, True])
def test_environment_is_ours(monkeypatch, unsafe):
    monkeypatch.setenv("API_KEY", "secret")
    got = run_tool(["/usr/bin/env"], env={"A": "1"}, unsafe=unsafe)
    names = {line.split("=")[0] for line in got.stdout.splitlines()}
    assert names - {"PWD", "_", "OLDPWD", "SHLVL"} == {"A", "PATH", "HOME", "TMPDIR"}


def test_links_out_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x")
    script = f"ln -s {tmp_path}/secret f; ln -s {tmp_path} d; mkfifo p; mkdir e; echo ok > e/ok"
    for unsafe in (False, True):
        got = run_tool([*SH, script], outputs=["f", "d/secret", "p", "e", "e/ok"], unsafe=unsafe)
        assert got.files == {"e/ok": b"ok\n"}, got


def test_only_ro_paths_are_seen_and_none_is_writable(tmp_path):
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "f").write_text("x")
    (tmp_path / "other").write_text("y")
    script = f"cat {tmp_path}/seen/f; cat {tmp_path}/other; touch {tmp_path}/seen/g"
    got = run_tool([*SH, script], ro=[tmp_path / "seen"])
    assert got.stdout == "x" and got.returncode and not (tmp_path / "seen" / "g").exists()


@pytest.mark.parametrize("unsafe", [False, True])
def test_time_limit_ends_the_whole_group(unsafe):
    with Watch() as watch:
        got = run_tool([*SH, "sleep 60 & sleep 60"], limits=Limits(wall_s=0.3), unsafe=unsafe)
    assert got.timed_out and got.returncode < 0 and watch.seconds < 5


def test_cpu_limit():
    got = run_tool([*SH, "while :; do :; done"], limits=Limits(cpu_s=1, wall_s=30))
    assert got.returncode < 0 and not got.timed_out


@pytest.mark.parametrize("unsafe", [False, True])
def test_file_size_limit(unsafe):
    got = run_tool(
        [*SH, "head -c 5000000 /dev/zero > big; head -c 100 /dev/zero > small"],
        outputs=["big", "small"],
        limits=Limits(file_mb=1),
        unsafe=unsafe,
    )
    assert len(got.files.get("big", b"")) <= 1 << 20 and len(got.files["small"]) == 100


def test_long_text_is_cut_and_says_so():
    got = run_tool([*SH, "yes | head -c 3000000"])
    assert len(got.stdout) < 1_100_000 and "more bytes left out" in got.stdout


def test_missing_tool_is_127_and_a_signal_is_negative():
    assert run_tool(["no-such-tool"]).returncode == 127
    assert run_tool([*SH, "kill -11 $$"]).returncode == -11


@pytest.mark.parametrize("name", ["../x", "/etc/x", ""])
def test_names_stay_inside(name):
    with pytest.raises(ValueError, match="inside"):
        run_tool(["/bin/true"], files={name: b""})


def test_nothing_is_left_behind(monkeypatch):
    made, mkdtemp = [], tempfile.mkdtemp  # by this process: other test workers come and go in the same folders

    def remember(*args, **kwargs):
        made.append(Path(mkdtemp(*args, **kwargs)))
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", remember)
    run_tool([*SH, "mkdir -p a/b; touch a/b/c; chmod 0 a/b"])
    fds = open_files()
    for _ in range(10):
        run_tool(["/bin/true"])
    assert open_files() <= fds  # what earlier tests left may be collected meanwhile
    assert len(made) >= 11
    assert not [path for path in made if path.exists()]
