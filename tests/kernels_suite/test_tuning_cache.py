"""The tuning cache: what was tuned comes back for the same device and shape class, and for no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Input, Meta, Node, Symbol
from hipwright.engine.knobs import Choice
from hipwright.engine.tuned import Tuned, TuningCache, estimated_on, shape_class, space_key, tuned_of
from hipwright.records import Estimate, Evaluation, TargetResult, Timing

SPACE = {
    "map:softmax": Choice(options=("block", "lanes"), default="block"),
    "ROW_BLOCK": Choice(options=(64, 256, 1024), default=256, kind="knob"),
}
CHOICES = {"map:softmax": "lanes", "ROW_BLOCK": 1024}


def graph(rows: int, columns: int, op: str = "aten.softmax.int", dtype: str = "float32", dim: int = 1) -> Graph:
    meta = Meta(dtype=dtype, shape=("s0", columns), stride=(columns, 1))
    node = Node(name="softmax", op=op, args=({"node": "x"}, dim), outs=(meta,))
    symbols = (Symbol(name="s0", access="x.shape[0]", hint=rows),)
    inputs = (Input(name="x", kind="input", access="x", meta=meta),)
    return Graph(parameters=("x",), inputs=inputs, nodes=(node,), output={"node": "softmax"}, symbols=symbols)


def measured(microseconds: float, device: str = "a GPU") -> Evaluation:
    timing = Timing(device=device, architecture="sm_90", median_ms=microseconds / 1e3)
    return Evaluation(
        task="t",
        program="p",
        status="pass",
        score=microseconds,
        score_kind="measured",
        targets={"cuda": TargetResult(target="cuda", timing=timing)},
    )


def entry(microseconds: float, choices: dict[str, Any] | None = None, **names: Any) -> Tuned:
    found = tuned_of(graph(4096, 1024), SPACE, choices or CHOICES, measured(microseconds, **names), 40)
    assert found is not None
    return found


def test_what_was_tuned_comes_back(tmp_path: Path) -> None:
    cache = TuningCache(tmp_path)
    assert cache.best(["a GPU"], graph(4096, 1024), SPACE) is None
    assert cache.remember(entry(10.0))
    found = TuningCache(tmp_path).best(["another", "a GPU"], graph(4096, 1024), SPACE)
    assert found is not None and found.choices == CHOICES
    assert (found.device, found.kind, found.evaluations) == ("a GPU", "measured", 40)


def test_another_device_another_class_and_another_space_know_nothing_of_it(tmp_path: Path) -> None:
    cache = TuningCache(tmp_path)
    cache.remember(entry(10.0))
    known = graph(4096, 1024)
    assert cache.best(["another GPU", estimated_on(["gfx942"])], known, SPACE) is None
    for other in (graph(16384, 1024), graph(4096, 1000), graph(4096, 1024, dtype="float16"), graph(4096, 1024, dim=0)):
        assert cache.best(["a GPU"], other, SPACE) is None
    wider = {**SPACE, "ROW_BLOCK": Choice(options=(64, 128, 256, 1024), default=256, kind="knob")}
    newer = {**SPACE, "call:mm": Choice(options=("library", "tiles"), default="tiles")}
    for space in (wider, newer, {"ROW_BLOCK": SPACE["ROW_BLOCK"]}):
        assert cache.best(["a GPU"], known, space) is None
    other_default = {**SPACE, "ROW_BLOCK": Choice(options=(64, 256, 1024), default=64, kind="knob")}
    assert cache.best(["a GPU"], known, other_default) is not None


def test_nearby_sizes_share_a_class_and_their_divisors_count() -> None:
    assert shape_class(graph(4096, 1024)) == shape_class(graph(5000 // 16 * 16, 1024))
    assert shape_class(graph(4096, 1024)) != shape_class(graph(4095, 1024))
    assert shape_class(graph(4096, 1024)) != shape_class(graph(4096, 1032))
    renamed = msgspec.structs.replace(graph(4096, 1024), guards=("x.shape[0] > 1",))
    assert shape_class(renamed) == shape_class(graph(4096, 1024))


def test_the_better_of_two_searches_of_a_task_stays(tmp_path: Path) -> None:
    cache = TuningCache(tmp_path)
    worse = {**CHOICES, "ROW_BLOCK": 64}
    assert cache.remember(entry(10.0)) and not cache.remember(entry(11.0, worse))
    assert cache.best(["a GPU"], graph(4096, 1024), SPACE).choices == CHOICES  # type: ignore[union-attr]
    assert cache.remember(entry(9.0, worse))
    assert cache.best(["a GPU"], graph(4096, 1024), SPACE).choices == worse  # type: ignore[union-attr]


def test_estimates_are_kept_apart_from_measurements(tmp_path: Path) -> None:
    estimate = Estimate(target="gfx942", microseconds=5.0, bound="memory", roofline_fraction=0.5)
    told = Evaluation(
        task="t",
        program="p",
        status="pass",
        score=5.0,
        score_kind="estimate",
        targets={"gfx942": TargetResult(target="gfx942", estimate=estimate), "cpu": TargetResult(target="cpu")},
    )
    found = tuned_of(graph(4096, 1024), SPACE, CHOICES, told, 12)
    assert found is not None and (found.device, found.kind) == (estimated_on(["gfx942"]), "estimate")
    cache = TuningCache(tmp_path)
    cache.remember(found)
    assert cache.best(["a GPU"], graph(4096, 1024), SPACE) is None
    assert cache.best(["a GPU", estimated_on(["gfx942"])], graph(4096, 1024), SPACE) == cache.entries()[0]
    nothing = msgspec.structs.replace(told, score=None, score_kind="none")
    assert tuned_of(graph(4096, 1024), SPACE, CHOICES, nothing, 12) is None


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    cache = TuningCache(tmp_path)
    cache.remember(entry(10.0))
    whole = cache.path.read_bytes()
    cache.path.write_bytes(whole[: len(whole) // 2] + b"\n" + whole)
    assert [one.choices for one in cache.entries()] == [CHOICES]
    assert space_key(SPACE) == cache.entries()[0].space
