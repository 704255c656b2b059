"""What every format of `hipwright export` has in common: key, licence, notice, same bytes, own folder, refusals."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from hipwright.records import Program
from hipwright.ship import notice
from hipwright.ship.formats.registry import FORMATS
from tests import warm
from tests.ship import subjects

ROOT = Path(__file__).parents[2]
KEY = Program(text=subjects.SCALE).key
EACH = pytest.mark.parametrize("form", sorted(FORMATS))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    (tmp_path / "3_Scale.py").write_text(subjects.SCALE_TASK)
    (tmp_path / "program.py").write_text(subjects.SCALE)
    return tmp_path


def export(home: Path, form: str, out: str, *more: str, program: str = "program.py") -> tuple[int, str, str]:
    done = warm.hipwright(home, "export", "3_Scale.py", program, "--format", form, "--out", out, *more)
    return done.returncode, done.stdout, done.stderr


def read(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@EACH
def test_one_key_one_notice_and_the_same_bytes(form: str, home: Path) -> None:
    code, out, err = export(home, form, "a", "--unverified", "--json")
    assert code == 0, err
    said = json.loads(out)
    files = read(home / "a")
    assert said["program_key"] == KEY and said["files"] == sorted(files) and said["verified_on"] == []
    assert files["LICENSE"] == (ROOT / "LICENSE").read_bytes() == notice.LICENSE.read_bytes()
    assert files["NOTICE"].startswith(b"Written by hipwright") and KEY.encode() in files["NOTICE"]
    assert b"NOT VERIFIED" in files["NOTICE"]
    manifest = json.loads(files.pop(notice.MANIFEST))
    assert manifest["program_key"] == KEY and manifest["format"] == form
    assert manifest["files"] == {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    keyed = [path for path, data in files.items() if KEY.encode() in data and path != "NOTICE"]
    assert keyed, "no file of the format's own names the program"
    others = re.compile(rb"hipwright(?:'s)? (?:from )?program ([0-9a-f]{20})")
    assert {key for data in files.values() for key in others.findall(data)} <= {KEY.encode()}
    assert export(home, form, "b", "--unverified")[0] == 0
    assert read(home / "b") == read(home / "a")


def test_the_notice_is_the_same_in_every_format(home: Path) -> None:
    for form in FORMATS:
        assert export(home, form, form, "--unverified")[0] == 0
    for name in ("NOTICE", "LICENSE"):
        assert len({(home / form / name).read_bytes() for form in FORMATS}) == 1


@EACH
def test_a_folder_that_is_not_its_own_is_left_alone(form: str, home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine/notes.txt").write_text("mine")
    code, _, err = export(home, form, "mine", "--unverified")
    assert code == 2 and "no export of hipwright's" in err and read(home / "mine") == {"notes.txt": b"mine"}
    code, _, err = export(home, form, "3_Scale.py", "--unverified")
    assert code == 2 and "is a file" in err
    assert export(home, form, "own", "--unverified")[0] == 0
    (home / "own/notes.txt").write_text("kept")
    assert export(home, form, "own", "--unverified")[0] == 0  # again: its own
    assert (home / "own/notes.txt").read_text() == "kept"
    other = next(name for name in FORMATS if name != form)
    code, _, err = export(home, other, "own", "--unverified")
    assert code == 2 and f"an export in the format {form}" in err
    (home / "own/NOTICE").write_text("changed by hand")
    code, _, err = export(home, form, "own", "--unverified")
    assert code == 2 and "was changed since" in err and (home / "own/NOTICE").read_text() == "changed by hand"


@pytest.mark.slow
@EACH
def test_a_program_that_fails_is_not_exported(form: str, home: Path) -> None:
    (home / "wrong.py").write_text(subjects.SCALE.replace("* a *", "* a * 1.01f *"))
    code, out, err = export(home, form, "x", "--json", program="wrong.py")
    assert code == 1 and err.startswith("error: ") and "not verified for 3_Scale: wrong_value" in err
    assert "--unverified" in err and not (home / "x").exists()
    assert json.loads(out)["status"] == "wrong_value"


@pytest.mark.slow
def test_a_program_that_passes_says_where(home: Path) -> None:
    code, out, err = export(home, "modelnew", "x", "--json")
    assert code == 0, err
    assert json.loads(out)["verified_on"] == ["cpu"] and "(on: cpu)" in (home / "x/NOTICE").read_text()


@pytest.mark.slow
def test_a_backward_is_not_said_to_be_verified(home: Path) -> None:
    (home / "both.py").write_text(subjects.SCALE_BACKWARD)
    code, _, err = export(home, "torch-op", "x", program="both.py")
    assert code == 0, err
    said = (home / "x/NOTICE").read_text()
    assert "(on: cpu)" in said and "Its backward is not verified" in said


def test_files_that_a_later_program_lacks_are_removed(home: Path) -> None:
    assert export(home, "torch-op", "x", "--unverified", "--name", "first")[0] == 0
    assert export(home, "torch-op", "x", "--unverified", "--name", "second")[0] == 0
    assert not (home / "x/src/first/plan.py").exists() and (home / "x/src/second/plan.py").exists()


def test_the_formats_are_listed_where_users_read() -> None:
    from hipwright.cli.export import export as command

    text = str(command.__annotations__["form"])
    page = (ROOT / "docs/exports.md").read_text()
    assert [name for name in FORMATS if name not in text or f"| `{name}` |" not in page] == []
