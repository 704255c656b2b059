"""What the timed calls of a model's parts were, and which programs replay graphs at all."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hipwright.api.live import callable as calls_module
from hipwright.api.live.callable import callable_program
from hipwright.api.live.exported import live_task
from hipwright.api.live.graphed import GraphedProgram
from hipwright.api.live.module import OptimizedModule
from hipwright.api.whole import replaced as replaced_module
from hipwright.api.whole.exchange import Exchange
from hipwright.api.whole.forwards import WARM_CALLS, block
from hipwright.api.whole.load import LoadedModel
from hipwright.api.whole.replaced import TITLE, ReplacedModel
from hipwright.records import Program

X = torch.ones(2)
NONE: Any = None


def test_counts_say_which_calls_replayed_a_graph_since_the_last_count() -> None:
    module = torch.nn.ReLU()
    live = live_task(module, (X,), {}, "relu")
    replaced = ReplacedModel(LoadedModel(module, (X,), {}), NONE)
    plain: Any = SimpleNamespace(prepares=False)
    program = GraphedProgram(plain)
    drop_in = OptimizedModule(module, live, program)
    replaced._parts["a"], replaced._parts["b"] = (3, module, drop_in), (3, module, OptimizedModule(module, live, None))
    program.replays, drop_in.__dict__["program_calls"] = 4, 6
    program.launched["its kind is new"] = 2
    drop_in.fallbacks["autocast is on"] = 1
    expected = {"calls": 6, "fallbacks": {"autocast is on": 1}, "replays": 4, "launched": {"its kind is new": 2}}
    assert replaced.counts() == {"3": expected}
    assert replaced.counts() == {"3": {"calls": 0, "fallbacks": {}, "replays": 0, "launched": {}}}


def test_calls_that_warm_up_are_over_before_the_timed_ones_are_counted() -> None:
    calls: list[str] = []
    block(lambda: calls.append("call"), 2, device=False, ready=lambda: calls.append("ready"))
    assert calls == ["call"] * WARM_CALLS + ["ready"] + ["call"] * 2


def test_parts_that_were_traced_before_are_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.ReLU())
    replaced = ReplacedModel(LoadedModel(net, (torch.ones(3, 2),), {}), Exchange())
    text = live_task(net[0], (torch.ones(3, 2),), {}, TITLE).task.text
    traced: list[torch.nn.Module] = []

    def tracing(part: torch.nn.Module, *more: Any) -> Any:
        traced.append(part)
        return live_task(part, *more)

    monkeypatch.setattr(replaced_module, "live_task", tracing)
    region = {"region": 0, "numbers": [1, 2], "text": text}
    replaced.trace([region])
    assert set(traced) == {net[0], net[1]}
    more = {"program": "", "passed": [], "searched": [], "remote": True}
    other = {"region": 1, "numbers": [3], "text": text}
    stay = replaced.install([{**region, **more}, {**other, **more}])
    assert traced[2:] == [net[2]] and stay == {"0": {}, "1": {"2": stay["1"]["2"]}}, stay
    assert "others than those" in stay["1"]["2"]


def test_programs_on_a_gpu_replay_graphs_unless_they_draw_or_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = SimpleNamespace(device="cuda", prepares=False)
    monkeypatch.setattr(calls_module, "PackagedProgram", lambda *_: packaged)
    task = live_task(torch.nn.ReLU(), (X,), {}, "relu").task
    how: Any = (Program(text=""), {"cuda"}, ["cuda"])
    assert isinstance(callable_program(task, *how)[0], GraphedProgram)
    assert callable_program(task, *how, graphs=False)[0] is packaged
    assert callable_program(replace(task, draws=True), *how)[0] is packaged
    monkeypatch.setenv("HIPWRIGHT_DEVICE_GRAPHS", "0")
    assert callable_program(task, *how)[0] is packaged
