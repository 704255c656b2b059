"""A model with programs replays one graph for all of a call: as it is judged, timed and told, and as it is loaded.

A tape plays the GPU (`tests.api.live.tape`).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.api.live import graphed
from hipwright.api.live.forward.graphs import forward_counts
from hipwright.api.live.graphed import NEW, WARM_CALLS, GraphedProgram
from hipwright.api.live.module import FallbackWarning, OptimizedModule
from hipwright.api.whole import replaced
from hipwright.api.whole.load import LoadedModel
from hipwright.api.whole.place import how_called
from hipwright.api.whole.plan import WHOLE
from hipwright.api.whole.replaced import ReplacedModel, replaced_parts
from tests.api.live.modules import same
from tests.api.live.nets import WIDTH, Launched, Net, drawn, traced
from tests.api.live.tape import TapeGraphs

NONE: Any = None
PARTS = {0: "first", 1: "blocks.0"}


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> TapeGraphs:
    """The process's graphs."""
    found = TapeGraphs()
    monkeypatch.setattr(graphed, "cuda_graphs", lambda: found)
    return found


def with_programs(extra: Any = None) -> ReplacedModel:
    """A net whose two parts are regions with programs."""
    net = Net(extra).eval()
    model = ReplacedModel(LoadedModel(net, (torch.randn(3, WIDTH),), {}), NONE)
    for region, path in PARTS.items():
        part, program = net.get_submodule(path), GraphedProgram(Launched(traced(path)))
        model._parts[path] = (region, part, OptimizedModule(part, traced(path), program))
    return model


def called(model: ReplacedModel, times: int) -> list[Any]:
    """The results of calls with one argument."""
    with torch.no_grad():
        return [model.model(torch.ones(3, WIDTH)) for _ in range(times)]


def test_any_choice_of_regions_is_called_in_the_same_way(tapes: TapeGraphs) -> None:
    model = with_programs()
    first = called(model, 1)[0]
    for _ in range(2):
        for chosen in ([0, 1], [0], [], [1]):
            model.choose(chosen)
            assert all(same(found, first) for found in called(model, WARM_CALLS + 1))
            model.counts()
            called(model, 4)
            counts = model.counts()
            assert counts[WHOLE] == {"replays": 4, "launched": {}, "parts": 0}
            assert {n: counts[str(n)]["calls"] for n in PARTS} == {n: 4 * (n in chosen) for n in PARTS}
            assert how_called(counts) == "4 of 4 calls of the model replay one graph of all of it"
            assert how_called(counts, 0) == how_called(counts)
    model.choose([0, 1])
    assert forward_counts(model.model)[""]["captures"] == 1, "a choice keeps its graph"


def test_what_kept_a_model_from_one_graph_is_told_with_how_its_programs_were_called(tapes: TapeGraphs) -> None:
    model = with_programs(drawn)
    model.choose([0, 1])
    with pytest.warns(FallbackWarning, match="Net replays no graph of the whole call: it draws random numbers") as told:
        called(model, 3 * WARM_CALLS)
    assert told[0].filename == __file__
    model.counts()
    called(model, 5)
    assert how_called(model.counts()) == (
        "0 of 5 calls of the model replay one graph of all of it; others: it draws random numbers; "
        "of programs, 10 of 10 calls replay a graph of the GPU"
    )


def test_counts_of_parts_with_graphs_of_their_own() -> None:
    own = {"calls": 6, "replays": 0, "fallbacks": {}, "launched": {}}
    counts = {"0": own, WHOLE: {"replays": 2, "launched": {"it draws": 1}, "parts": 3}}
    assert how_called(counts) == (
        "2 of 3 calls of the model replay one graph of all of it; others: it draws; 3 calls of its parts replay one of"
        " theirs; of programs, 0 of 6 calls replay a graph of the GPU"
    )
    assert how_called({"0": own}) == "0 of 6 calls replay a graph of the GPU"
    assert how_called({}) == ""


def test_programs_that_are_loaded_into_a_model_share_one_graph(
    tapes: TapeGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {traced(path).task.text: Launched(traced(path)) for path in PARTS.values()}
    monkeypatch.setattr(replaced, "TITLE", "part")
    monkeypatch.setattr(replaced, "callable_program", lambda task, *_: (GraphedProgram(programs[task.text]), ""))
    net: Any = Net().eval()
    x = torch.randn(3, WIDTH)
    expected = net(x)
    asked = [
        {"paths": [path], "text": traced(path).task.text, "program": "", "targets": [], "searched": []}
        for path in PARTS.values()
    ]
    assert replaced_parts(LoadedModel(net, (x,), {}), asked) == {}
    with torch.no_grad():
        assert all(same(net(x), expected) for _ in range(WARM_CALLS + 3))
    assert forward_counts(net) == {"": {"replays": 3, "captures": 1, "launched": {NEW: WARM_CALLS}}}
