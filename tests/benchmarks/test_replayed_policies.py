"""`python -m benchmarks policies`: searches replayed on a landscape that was made by hand and whose best is known."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.landscapes.policies import chosen_arms, compared, csv, installed
from benchmarks.landscapes.replay import Landscape, TableJudge, replayed
from hipwright.agents.ablation.arms import Arm
from hipwright.search import POLICIES

KEYS: dict[str, tuple[list[Any], Any, str]] = {
    "map:a": (["block", "lanes", "columns"], "block", "structure"),
    "fuse": ([True, False], True, "structure"),
    "BLOCK": ([64, 128, 256, 512], 256, "knob"),
    "ITEMS": ([1, 2, 4], 1, "knob"),
}
BEST = {"map:a": "lanes", "fuse": True, "BLOCK": 128, "ITEMS": 4}
LURES = ({"map:a": "columns", "fuse": True, "BLOCK": 64}, {"map:a": "lanes", "fuse": False, "BLOCK": 512})
"""Refused, and off: they have the lowest times of all."""


def microseconds(one: dict[str, Any]) -> float:
    far = sum(one[key] != value for key, value in BEST.items())
    return 10.0 * 1.2**far + 0.01 * (64, 128, 256, 512).index(one["BLOCK"])


def table(name: str = "examples/made_up.py") -> dict[str, Any]:
    """A row as the command `landscape` writes it: ITEMS acts beside "lanes" alone, so other programs repeat."""
    rows: list[dict[str, Any]] = []
    numbers: dict[tuple[Any, ...], int] = {}
    times: dict[int, float] = {}
    for values in itertools.product(*(options for options, _, _ in KEYS.values())):
        one = dict(zip(KEYS, values, strict=True))
        same = values if one["map:a"] == "lanes" else values[:-1]
        number = numbers.setdefault(same, len(numbers))
        row = {"settings": one, "program": number, "us": times.setdefault(number, microseconds(one))}
        if LURES[0].items() <= one.items():
            del row["us"]
            row["refused"] = "too many registers"
        elif LURES[1].items() <= one.items():
            row |= {"us": 1.0, "off": 0.7}
        rows.append(row)
    keys = {
        key: {"options": options, "default": default, "kind": kind} for key, (options, default, kind) in KEYS.items()
    }
    return {"task": name, "keys": keys, "rows": rows, "gpu": "made up"}


@pytest.fixture(scope="module")
def landscape() -> Landscape:
    return Landscape(table())


ARMS = [
    *(Arm(name=name, kind="plain", policy=name) for name in installed() if name != "pyribs"),
    Arm(name="pipeline", kind="pipeline"),
    Arm(name="pipeline by pattern", kind="pipeline", policy="pattern"),
]


@pytest.mark.parametrize("arm", ARMS, ids=[arm.name for arm in ARMS])
def test_an_arm_stays_in_the_table_and_never_takes_a_refused_program(landscape: Landscape, arm: Arm) -> None:
    first, again = TableJudge(landscape), TableJudge(landscape)
    found = replayed(landscape, arm, 3, 24, first)
    assert first.asked and set(first.asked) <= set(landscape.entries)
    assert len(first.asked) == len(set(first.asked)) == found.evaluations <= 24, "equal programs are asked once"
    passed = [one.us for text in first.asked if (one := landscape.entries[text]).status == "pass"]
    assert found.best == min(us for us in passed if us is not None) >= landscape.best
    assert found.failed == len(first.asked) - len(passed)
    assert replayed(landscape, arm, 3, 24, again) == found and again.asked == first.asked, "the same seed"


def test_a_program_outside_the_table_is_an_error(landscape: Landscape) -> None:
    with pytest.raises(KeyError):
        landscape.write({**BEST, "BLOCK": 1024})


def test_the_best_is_one_that_passed(landscape: Landscape) -> None:
    assert landscape.best == microseconds(BEST) and landscape.default == microseconds(
        {**BEST, "map:a": "block", "BLOCK": 256, "ITEMS": 1}
    )
    statuses = [entry.status for entry in landscape.entries.values()]
    assert statuses.count("compile_error") == 1 and statuses.count("wrong_value") == 3
    assert len(statuses) == 2 * 4 * (3 + 1 + 1)


def test_searching_is_better_than_the_first_program_and_a_larger_budget_finds_the_best(landscape: Landscape) -> None:
    arms = chosen_arms(["single-shot", "best-of-n", "plain", "pipeline"], ["pattern"], [])
    assert [arm.name for arm in arms][:3] == ["islands", "single-shot", "best-of-n"]
    found = compared([landscape], arms, seeds=4, budget=40)
    gains = {one.arm: one for one in found.gains}
    rows = {one.arm: one for one in found.rows}
    assert gains["single-shot"].ratio == 1.0 and gains["single-shot"].share == 0.0
    assert gains["islands"].on_the_way == 1.0 and rows["islands"].ratio == 1.0
    assert gains["pattern"].share == pytest.approx(1.0) and rows["pattern"].reached == 4
    assert gains["pattern"].ratio == pytest.approx(landscape.default / landscape.best)
    assert rows["single-shot"].excess == pytest.approx([landscape.default / landscape.best] * 40, abs=1e-4)
    assert (gains["single-shot"].on_the_way or 0) > 1.0
    assert (
        csv(found).splitlines()[0].split(",")[::40] == ["arm", "40"] and len(csv(found).splitlines()) == len(arms) + 1
    )


def test_processes_change_nothing(landscape: Landscape) -> None:
    arms = chosen_arms(["plain"], ["pattern"], [])
    other = Landscape(table("examples/other.py"))
    assert compared([landscape, other], arms, 2, 6, workers=2) == compared([landscape, other], arms, 2, 6)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "landscapes.jsonl", tmp_path / "out"
    file.write_text("\n".join(json.dumps(row) for row in (table(), {"task": "lost.py", "failed": "a fault"})) + "\n")
    asked = ["policies", str(file), "--seeds", "2", "--budget", "8", "--workers", "1", "--policy", "pattern"]
    assert main([*asked, "--pipeline-by", "pattern", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert (
        "1 landscapes x 2 seeds, 8 evaluations each, times of made up; ratios are to islands" in shown
        and "| pipeline by pattern |" in shown
    )
    written = json.loads((out / "policies.json").read_text())
    assert [row["arm"] for row in written["rows"]] == [one["arm"] for one in written["gains"]]
    assert written["landscapes"] == {
        "examples/made_up.py": {"programs": 40, "default": pytest.approx(17.3, abs=0.1), "best": pytest.approx(10.01)}
    }
    picture = ElementTree.fromstring((out / "policies.svg").read_text())
    titles = [one.text for one in picture.iter() if one.tag.endswith("title")]
    assert sorted(titles) == sorted(row["arm"] for row in written["rows"])
    assert main([*asked, "--arms", "plain", "--json", "--out", str(out)]) == 0
    assert "outcomes" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("wrong", [["--arms", "none"], ["--policy", "none"], ["--pipeline-by", "none"]])
def test_wrong_names_end_in_one_line(tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "landscapes.jsonl"
    file.write_text(json.dumps(table()) + "\n")
    assert main(["policies", str(file), "--out", str(tmp_path), *wrong]) == 2
    assert "unknown" in capsys.readouterr().err


def test_all_policies_are_arms_where_their_packages_are() -> None:
    assert set(installed()) <= set(POLICIES) and {"islands", "pattern", "world_model"} <= set(installed())


@pytest.mark.parametrize("name", ["it.jsonl", "it.jsonl.xz"])
@pytest.mark.parametrize("text", ["no JSON", '{"a": 1}\n', '{"task": "t"}\n', "[1]\n"])
def test_files_of_something_else_end_in_one_line(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    commands = [["policies", str(file), "--out", str(tmp_path / "p")], ["ranks", "--report", str(file)]]
    commands.append(["landscape", "examples/l2_normalize.py", "--target", "cpu", "--out", str(file)])
    for command in commands if '"task"' not in text else commands[:2]:
        assert main(command) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_where_nothing_can_be_written_nothing_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    landscapes = "benchmarks/landscapes/h200.jsonl.xz"
    assert main(["policies", landscapes, "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot write to" in capsys.readouterr().err
