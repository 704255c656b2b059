"""benchmarks/knobs.py: which variants it makes, what it says of them, and that it runs (on the processor)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks import knobs
from hipwright.capture.graph import Graph
from hipwright.program import parse
from tests.engine.harness import Op, captured

TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x) + y


def get_inputs():
    return [torch.randn(64, 40), torch.randn(64, 40)]
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return captured(Op(lambda x: x.relu()), [torch.randn(512, 512)])


def test_settings_go_one_at_a_time_or_by_a_grid(graph: Graph) -> None:
    one = list(knobs.varied(graph, {}).values())
    assert one[0] == {} and all(len(chosen) == 1 for chosen in one[1:])
    assert {"BLOCK": 64} in one and {"BLOCK": 128} not in one  # 128 is the default
    grid = knobs.varied(graph, {"BLOCK": [64, 96], "VEC": [2]})
    assert grid == {
        "default": {},
        "BLOCK=64 VEC=2": {"BLOCK": 64, "VEC": 2},
        "BLOCK=96 VEC=2": {"BLOCK": 96, "VEC": 2},
    }


def test_programs_differ_and_take_values_that_the_space_has_not(graph: Graph) -> None:
    made = knobs.programs(graph, knobs.varied(graph, {"BLOCK": [128, 96, 64]}))
    assert list(made) == ["default", "BLOCK=96", "BLOCK=64"]
    for name, value in (("BLOCK=96", 96), ("BLOCK=64", 64)):
        assert parse(made[name].text).defines(made[name].knobs)["BLOCK"] == value


def test_the_best_of_each_key_are_told_by_their_gain() -> None:
    settings = {"default": {}, "a=1": {"a": 1}, "a=2": {"a": 2}, "b=1": {"b": 1}, "c=1": {"c": 1}}
    speeds = {"default": 1.0, "a=1": 1.1, "a=2": 1.2, "b=1": 1.3, "c=1": 0.9, "eager": 10.0}
    assert knobs.helping(settings, speeds) == [{"b": 1}, {"a": 2}]


def test_a_task_on_the_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, out = tmp_path / "task.py", tmp_path / "out.jsonl"
    task.write_text(TASK)
    asked = ["--target", "cpu", "--rounds", "2", "--set", "BLOCK=64,128", "--out", str(out)]
    assert knobs.main([str(task), *asked]) == 0
    told = json.loads(out.read_text())
    assert set(told["us"]) == {"default", "eager", "copy", "BLOCK=64", "BLOCK=128"}
    assert all(us > 0 for us in told["us"].values()) and told["ratio"]["default"] == 1.0
    assert not told["off"] and not told["refused"]
    shown = capsys.readouterr().out
    assert "2 variants" not in shown and "3 variants, 0 refused" in shown and "BLOCK=64" in shown


@pytest.mark.parametrize("helps", [True, False])
def test_settings_are_joined_one_by_one_where_they_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helps: bool
) -> None:
    task, out = tmp_path / "task.py", tmp_path / "out.jsonl"
    task.write_text(TASK.replace("64, 40", "1024, 1024"))
    asked: list[list[str]] = []
    real = knobs.Timed.turns
    told = {"BLOCK=64": 2.5, "VEC=1": 2.0, "VECS=2": 1.5, "BLOCK=64 VEC=1": 3.0 if helps else 2.0}

    def faster(self: knobs.Timed, names: list[str], rounds: int) -> dict[str, tuple[float, float]]:
        asked.append(list(names))
        return {name: (us, told.get(name, 1.0)) for name, (us, _) in real(self, names, rounds).items()}

    singles = [{"BLOCK": 64}, {"VEC": 1}, {"VECS": 2}]
    settings = {"default": {}, **{knobs._words(one): one for one in singles}}
    monkeypatch.setattr(knobs, "varied", lambda graph, grid: settings)
    monkeypatch.setattr(knobs.Timed, "turns", faster)
    assert knobs.main([str(task), "--target", "cpu", "--rounds", "1", "--out", str(out)]) == 0
    assert [n for n in asked[0] if n in settings] == list(settings)
    kept = "BLOCK=64 VEC=1" if helps else "BLOCK=64"
    assert [names[-2:] for names in asked[1:]] == [["BLOCK=64", "BLOCK=64 VEC=1"], [kept, f"{kept} VECS=2"]]
    assert {"BLOCK=64 VEC=1", f"{kept} VECS=2"} <= set(json.loads(out.read_text())["us"])


def test_the_session_script_names_tasks_that_are_there_and_says_what_it_wants(tmp_path: Path) -> None:
    root = Path(knobs.__file__).parents[1]
    assert all((root / line).is_file() for line in (root / "benchmarks/ties.txt").read_text().splitlines())
    script = str(root / "benchmarks/session.sh")

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", script, *arguments], capture_output=True, text=True, timeout=60, check=False)

    usage, none = called(), called("20", str(tmp_path), "none")
    assert usage.returncode == 2 and usage.stdout.splitlines()[-1].startswith("# A part is stopped")
    assert none.returncode == 2 and none.stderr.startswith("none is no file")


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["nowhere.py"], [__file__, "--set", "BLOCK"], [__file__, "--target", "cuda"]):
        with pytest.raises(SystemExit) as stopped:
            knobs.main(asked)
        assert stopped.value.code == 2
    broken = tmp_path / "broken.py"
    broken.write_text("class Model: pass\n")
    assert knobs.main([str(broken), "--target", "cpu"]) == 1
    assert "Model is not a torch.nn.Module" in capsys.readouterr().err
