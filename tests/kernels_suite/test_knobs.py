"""`python -m benchmarks knobs`: which variants it makes, what it reports, and that it runs (on the processor)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import registry
from benchmarks.__main__ import main
from benchmarks.commands import knobs, session
from benchmarks.common import ROOT
from benchmarks.timing.sides import TimedSides
from benchmarks.timing.variants import helpful_settings, idle_keys, settings_name, variant_programs, varied_settings
from hipwright.api.task_engine import measured_choices
from hipwright.capture.graph import Graph
from hipwright.engine import space
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
    one = list(varied_settings(graph, {}, {}).values())
    assert one[0] == {} and all(len(chosen) == 1 for chosen in one[1:])
    assert {"BLOCK": 64} in one and {"BLOCK": 128} not in one  # 128 is the default
    grid = varied_settings(graph, {"BLOCK": [64, 96], "VEC": [2]}, {})
    assert grid == {
        "default": {},
        "BLOCK=64 VEC=2": {"BLOCK": 64, "VEC": 2},
        "BLOCK=96 VEC=2": {"BLOCK": 96, "VEC": 2},
    }


def test_programs_differ_and_take_values_that_the_space_has_not(graph: Graph) -> None:
    made = variant_programs(graph, varied_settings(graph, {"BLOCK": [128, 96, 64]}, {}), {})
    assert list(made) == ["default", "BLOCK=96", "BLOCK=64"]
    for name, value in (("BLOCK=96", 96), ("BLOCK=64", 64)):
        assert parse(made[name].text).defines(made[name].knobs)["BLOCK"] == value


def test_keys_that_change_nothing_are_named(graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = {"BLOCK": [64, 128], "split": [True], "call:nothing": ["library"], "VEC": [2]}
    assert idle_keys(graph, varied_settings(graph, grid, {}).values(), {}) == ["split", "call:nothing"]
    (task := tmp_path / "added.py").write_text(TASK)
    assert main(["knobs", str(task), "--set", "BLOK=64,128", "--target", "cpu"]) == 1
    assert "changes no program of this task: BLOK" in capsys.readouterr().err


def test_the_best_of_each_key_are_told_by_their_gain() -> None:
    settings = {"default": {}, "a=1": {"a": 1}, "a=2": {"a": 2}, "b=1": {"b": 1}, "c=1": {"c": 1}}
    speeds = {"default": 1.0, "a=1": 1.1, "a=2": 1.2, "b=1": 1.3, "c=1": 0.9, "eager": 10.0}
    assert helpful_settings(settings, speeds) == [{"b": 1}, {"a": 2}]


def test_a_task_on_the_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, out = tmp_path / "task.py", tmp_path / "out.jsonl"
    task.write_text(TASK)
    asked = ["--target", "cpu", "--rounds", "2", "--set", "BLOCK=64,128", "--out", str(out)]
    assert main(["knobs", str(task), *asked]) == 0
    told = json.loads(out.read_text())
    assert set(told["us"]) == {"default", "eager", "copy", "BLOCK=64", "BLOCK=128"}
    assert all(us > 0 for us in told["us"].values()) and told["ratio"]["default"] == 1.0
    assert not told["off"] and not told["refused"]
    shown = capsys.readouterr().out
    assert "2 variants" not in shown and "3 variants, 0 refused" in shown and "BLOCK=64" in shown


def test_the_default_alone(tmp_path: Path) -> None:
    (task := tmp_path / "task.py").write_text(TASK)
    out = tmp_path / "out.jsonl"
    assert main(["knobs", str(task), "--alone", "--target", "cpu", "--rounds", "1", "--out", str(out)]) == 0
    assert set(json.loads(out.read_text())["us"]) == {"copy", "eager", "default"}
    assert main(["knobs", str(task), "--alone", "--set", "BLOCK=64", "--target", "cpu"]) == 2


@pytest.mark.parametrize("helps", [True, False])
def test_settings_are_joined_one_by_one_where_they_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helps: bool
) -> None:
    task, out = tmp_path / "task.py", tmp_path / "out.jsonl"
    task.write_text(TASK.replace("64, 40", "1024, 1024"))
    asked: list[list[str]] = []
    real = TimedSides.times
    told = {"BLOCK=64": 2.5, "VEC=1": 2.0, "VECS=2": 1.5, "BLOCK=64 VEC=1": 3.0 if helps else 2.0}

    def faster(self: TimedSides, names: list[str], rounds: int) -> dict[str, tuple[float, float]]:
        asked.append(list(names))
        return {name: (us, told.get(name, 1.0)) for name, (us, _) in real(self, names, rounds).items()}

    singles = [{"BLOCK": 64}, {"VEC": 1}, {"VECS": 2}]
    settings = {"default": {}, **{settings_name(one): one for one in singles}}
    monkeypatch.setattr(knobs, "varied_settings", lambda graph, grid, base: settings)
    monkeypatch.setattr(TimedSides, "times", faster)
    assert main(["knobs", str(task), "--target", "cpu", "--rounds", "1", "--out", str(out)]) == 0
    assert [n for n in asked[0] if n in settings] == list(settings)
    kept = "BLOCK=64 VEC=1" if helps else "BLOCK=64"
    assert [names[-2:] for names in asked[1:]] == [["BLOCK=64", "BLOCK=64 VEC=1"], [kept, f"{kept} VECS=2"]]
    assert {"BLOCK=64 VEC=1", f"{kept} VECS=2"} <= set(json.loads(out.read_text())["us"])


def test_the_tasks_that_tie_with_the_compiler_come_from_records() -> None:
    tied = knobs.tied_tasks(ROOT / "benchmarks/records/h200.jsonl")
    assert tied and all(path.is_file() for path in tied)


def test_every_part_of_a_session_is_a_benchmark(tmp_path: Path) -> None:
    for part in session.PARTS:
        name, *rest = session.command_of(part, tmp_path, tmp_path / "programs.jsonl", 300)[0]
        options = registry.parser(name, "")
        registry.load(name).add_options(options)
        options.parse_args(rest)


def test_a_session_stops_a_part_in_time_and_wants_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["session", "20", str(tmp_path), "none"]) == 2
    assert capsys.readouterr().err.startswith("error: none is no file")
    session.run_part("listing", [], 60, tmp_path / "listing.log")
    assert "listing: exit 0" in capsys.readouterr().out
    session.run_part("listing", [], 0, tmp_path / "listing.log")
    assert "listing: exit 124" in capsys.readouterr().out


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["nowhere.py"], [__file__, "--set", "BLOCK"], [__file__, "--target", "cuda"]):
        assert main(["knobs", *asked]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    broken = tmp_path / "broken.py"
    broken.write_text("class Model: pass\n")
    assert main(["knobs", str(broken), "--target", "cpu"]) == 1
    assert "Model is not a torch.nn.Module" in capsys.readouterr().err


def test_variants_start_from_what_a_run_on_the_target_starts_from() -> None:
    """A float32 product on NVIDIA's GPUs is a split one there; the settings are told apart from it."""
    graph = captured(Op(lambda x, y: x @ y), [torch.randn(1024, 1024), torch.randn(1024, 1024)])
    base = measured_choices(["cuda"], {"cuda": "sm_90"})
    (key,) = [key for key in space(graph) if key.startswith("call:")]
    settings = varied_settings(graph, {}, base)
    assert {key: "library"} in settings.values() and {key: "split"} not in settings.values()
    made = variant_programs(graph, {"default": {}, "library": {key: "library"}}, base)
    assert "__global__" in made["default"].text and "__global__" not in made["library"].text
    assert "__global__" not in variant_programs(graph, {"default": {}}, {})["default"].text
