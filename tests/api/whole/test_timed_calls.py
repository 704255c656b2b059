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
from hipwright.api.whole.forwards import WARM_CALLS, block
from hipwright.api.whole.load import LoadedModel
from hipwright.api.whole.replaced import ReplacedModel
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
