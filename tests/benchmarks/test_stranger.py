"""The stranger's path: its pictures, its failures, and the whole of it from a wheel."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.stranger import screens
from benchmarks.stranger.path import LIMIT, Walk, add_options, run
from hipwright.errors import BadInput


def options(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(argv)


def test_a_terminals_picture_makes_no_request(tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    screens.terminal("\x1b[1;32mpass\x1b[0m a_b <b>&  \n" + "x" * (screens.WIDTH + 5), path, "title")
    text = path.read_text()
    assert re.search(r'<svg [^>]*width="[\d.]+" height="[\d.]+"', text)
    assert "url(" not in text.replace("url(#", "") and "@import" not in text and "@font-face" not in text
    drawn = [node.text or "" for node in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    said = [line.replace("\xa0", " ") for line in drawn]
    assert "pass" in said and " a_b <b>&" in said and "x" * screens.WIDTH in said and "xxxxx" in said


def test_the_middle_of_a_long_screen_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "long.svg"
    screens.terminal("\n".join(f"line-{number}" for number in range(100)), path, "title")
    text = path.read_text().replace("&#160;", " ")
    assert "line-0<" in text and "line-99<" in text and "line-50<" not in text and "… 63 lines …" in text


def test_steps_are_timed_drawn_and_fail_with_what_was_said(tmp_path: Path) -> None:
    walk = Walk(tmp_path, tmp_path)
    walk.step("say", {"echo shown": f"echo {tmp_path}/here"})
    assert walk.seconds["say"] >= 0 and "~/here" in (tmp_path / "say.svg").read_text()
    with pytest.raises(BadInput, match=r"fall: `ls nowhere` ends with 2: .*nowhere"):
        walk.step("fall", {"ls": "ls nowhere"})
    assert "fall" not in walk.seconds


def test_the_path_begins_in_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="exists"):
        run(options("--out", str(tmp_path)))


@pytest.mark.exhaustive
def test_the_whole_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "walk"
    assert run(options("--out", str(out))) in (0, 1)  # 1: over five minutes, on a busy machine
    said = json.loads(capsys.readouterr().out)
    assert list(said["seconds"]) == ["install", "optimise", "look", "compare", "export", "use"]
    assert said["limit"] == LIMIT and (out / "demo/report.html").is_file() and (out / "package/src").is_dir()
