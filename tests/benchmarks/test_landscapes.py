"""`python -m benchmarks landscape`: the part of a space that is measured is closed, and a small task is measured."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.landscapes import command, measure
from benchmarks.landscapes.measure import Limits, landscape
from benchmarks.landscapes.product import TimedKey, chosen_product, closed_part, combinations, timed_key
from benchmarks.landscapes.programs import TaskPrograms
from benchmarks.landscapes.replay import Landscape
from benchmarks.timing.runner import ProgramRunner, open_runner
from benchmarks.timing.sides import TimedSides
from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.errors import BadInput
from hipwright.program import parse
from hipwright.records import Build, Program
from tests.engine.harness import Op, captured

TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, dim=-1)


def get_inputs():
    return [torch.randn(64, 40)]
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return captured(Op(lambda x: (x * 2).softmax(-1)), [torch.randn(64, 40)])


def count_all(product: Mapping[str, list[Any]]) -> int:
    return len(combinations(dict(product)))


def test_programs_are_those_that_the_engine_writes_for_all_choices(graph: Graph) -> None:
    programs, rng = TaskPrograms(graph, {}), random.Random(0)
    for _ in range(40):
        full = {key: rng.choice(choice.options) for key, choice in programs.space.items()}
        made, expected = programs.program(programs.settings(full)), write(graph, full)
        parsed = parse(expected.text)
        assert made.text == expected.text and parsed.defines(made.knobs) == parsed.defines(expected.knobs)


def test_equal_programs_have_one_name(graph: Graph) -> None:
    programs = TaskPrograms(graph, {})
    columns = {"map:softmax_mul": "columns"}
    assert programs.name({}) == "default" and programs.name(columns) == "map:softmax_mul=columns"
    assert programs.name({"LANES": 4}) == "LANES=4"
    assert programs.name({**columns, "LANES": 4}) == programs.name(columns), "the lanes are of another mapping"


def test_a_key_keeps_its_default_and_its_fastest_options() -> None:
    key = timed_key("BLOCK", 256, {64: 3.0, 128: 1.0, 256: 4.0, 512: 2.0}, 3)
    assert key is not None and list(key.options) == [256, 128, 512] and key.spread == 4.0
    assert timed_key("BLOCK", 256, {256: 4.0}, 3) is None, "no other option has a time"
    assert timed_key("BLOCK", 256, {64: 4.0}, 3) is None, "the default has none"


def test_the_product_takes_keys_by_their_spread_while_there_is_room() -> None:
    keys = [
        TimedKey("a", [1, 2, 3, 4], [4.0, 3.0, 3.5, 3.9]),
        TimedKey("b", [1, 2, 3], [9.0, 3.0, 3.5]),
        TimedKey("c", [1, 2], [1.0, 1.01]),
    ]
    assert chosen_product(keys, 12, count_all) == {"b": [1, 2, 3], "a": [1, 2, 3, 4]}
    assert chosen_product(keys, 7, count_all) == {"b": [1, 2, 3], "a": [1, 2]}, "the fastest options of a stay"
    assert chosen_product(keys, 30, count_all) == {"b": [1, 2, 3], "a": [1, 2, 3, 4], "c": [1, 2]}


def test_a_key_that_brings_no_program_is_left_out() -> None:
    keys = [TimedKey("idle", [0, 1], [5.0, 1.0]), TimedKey("map", ["block", "lanes"], [2.0, 1.0])]
    distinct = {"map": 2, "idle": 1}
    assert list(chosen_product(keys, 9, lambda product: max(distinct[key] for key in product))) == ["map"]


def test_what_is_left_is_closed_and_holds_the_default() -> None:
    product: dict[str, list[Any]] = {"a": [0, 1, 2], "b": [0, 1, 2, 3], "c": [0, 1]}
    rng = random.Random(1)
    for share in (0.0, 0.3, 0.8, 0.97, 1.0):
        done = {tuple(one.values()) for one in combinations(product) if rng.random() < share} | {(0, 0, 0)}
        left = closed_part(product, lambda one, done=done: tuple(one.values()) in done)
        full = [{"a": 0, "b": 0, "c": 0, **one} for one in combinations(left)]
        assert all(tuple(one.values()) in done for one in full)
        assert all(options[0] == 0 and len(options) > 1 for options in left.values())
        assert left == product or share < 1.0


def test_one_missing_program_costs_one_option() -> None:
    product: dict[str, list[Any]] = {"a": [0, 1, 2], "b": [0, 1]}
    assert closed_part(product, lambda one: one != {"a": 2, "b": 1}) == {"a": [0, 1], "b": [0, 1]}


def test_a_task_on_the_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, broken, out = tmp_path / "task.py", tmp_path / "broken.py", tmp_path / "out.jsonl"
    task.write_text(TASK)
    broken.write_text(TASK.replace("torch.softmax", "torch.nothing"))
    asked = ["landscape", str(broken), str(task), "--target", "cpu", "--programs", "8", "--rounds", "2"]
    assert main([*asked, "--out", str(out)]) == 1, "one task failed"
    told = capsys.readouterr()
    assert "broken.py" in told.err and "task.py: " in told.out and "Traceback" not in told.err
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    sizes = [len(one["options"]) for one in row["keys"].values()]
    assert 2 <= row["programs"] <= 8 and len(row["rows"]) == torch.tensor(sizes).prod().item()
    assert {"eager", "copy"} == set(row["baselines"]) and row["copy_share"] > 0
    by_program: dict[int, set[float]] = {}
    for one in row["rows"]:
        by_program.setdefault(one["program"], set()).add(one["us"])
    assert len(by_program) == row["programs"] and all(len(times) == 1 for times in by_program.values())
    assert len(row["features"]) == row["programs"] and row["features"][0]["launches"] == 1.0
    found = Landscape(row)
    assert found.best <= found.default < float("inf")
    assert main([*asked, "--out", str(out)]) == 1 and len(out.read_text().splitlines()) == 1, "it is known"


def bounded(runner: ProgramRunner, task: Path, graph: Graph) -> dict[str, Any]:
    """The landscape within few seconds, or more of them where a busy machine timed no other option."""
    for seconds in (4.0, 16.0):
        with suppress(BadInput):
            return landscape(runner, task, graph, Limits(programs=24, rounds=1, seconds=seconds))
    return landscape(runner, task, graph, Limits(programs=24, rounds=1, seconds=60.0))


def test_a_table_is_closed_whatever_time_there_was(tmp_path: Path, graph: Graph) -> None:
    task = tmp_path / "task.py"
    task.write_text(TASK)
    with open_runner("cpu") as runner:
        row = bounded(runner, task, graph)
    settings = [tuple(one["settings"].values()) for one in row["rows"]]
    assert len(set(settings)) == len(settings) == count_all({k: one["options"] for k, one in row["keys"].items()})
    assert all({"us", "refused"} & set(one) for one in row["rows"])


def test_a_program_at_which_torch_fails_is_refused(
    tmp_path: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "task.py"
    task.write_text(TASK)
    real = TimedSides.add

    def short_of_memory(self: TimedSides, name: str, program: Program, build: Build) -> None:
        if name == "LANES=4 ROW_VEC=1":
            raise RuntimeError("out of memory")
        real(self, name, program, build)

    monkeypatch.setattr(TimedSides, "add", short_of_memory)
    monkeypatch.setattr(measure, "chosen_product", lambda keys, programs, count: {"LANES": [16, 4], "ROW_VEC": [4, 1]})
    monkeypatch.setattr(measure, "_single_changes", lambda programs: [{}, {"LANES": 4}, {"ROW_VEC": 1}])
    with open_runner("cpu") as runner:
        row = landscape(runner, task, graph, Limits(rounds=1))
    assert [one.get("refused") for one in row["rows"]] == [None, None, None, "out of memory"]


def test_a_lost_context_is_recorded_so_that_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, out = [tmp_path / "a.py", tmp_path / "b.py"], tmp_path / "out.jsonl"
    for task in tasks:
        task.write_text(TASK)

    def fault(*_: Any) -> dict[str, Any]:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(command, "landscape", fault)
    monkeypatch.setattr(command, "lost", lambda runner: True)
    asked = ["landscape", *map(str, tasks), "--target", "cpu", "--out", str(out)]
    assert main(asked) == 1 and command.measured(out) == {str(tasks[0])}
    assert main(asked) == 1 and command.measured(out) == set(map(str, tasks))
    assert capsys.readouterr().err.count("the same command goes on") == 2
    assert main(["policies", str(out), "--out", str(tmp_path / "p")]) == 2, "it holds no landscape"
