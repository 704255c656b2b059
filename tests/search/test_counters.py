"""Counters in the search: what is profiled and paid, what the log keeps, and that moves follow what limits a parent."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from landscape import SPACE, Judge, begin, canonical, go_on, source

from hipwright.agents.engine_author import EngineAuthor
from hipwright.archive import Archive, Counted, read_log
from hipwright.records import Evaluation, Expansion, Program
from hipwright.search import Proposal, ProposalRequest, SearchView
from hipwright.search.moves import EVERY_MOVE, LIMITS, MOVES, choice_kind, keys_of, moved


@dataclass
class FakeCounters:
    """A profiler that always finds the same limit. fails: the profiles that raise no record of their own."""

    limit: str = "memory"
    price: int = 1
    fails: bool = False
    profiles: list[str] = field(default_factory=list)

    def profile(self, program: Program, evaluation: Evaluation) -> Counted:
        self.profiles.append(program.key)
        if self.fails:
            return Counted(program="", round=0, source="static", error="no permission", cost=1, seconds=0.5)
        return Counted(program="", round=0, source="ncu", limit=self.limit, cost=1, seconds=2.0, text="busy")

    def static(self, evaluation: Evaluation) -> Counted:
        return Counted(program="", round=0, source="static", limit="issue")


def test_a_profile_is_paid_with_evaluations_and_sampled(archive: Archive) -> None:
    counters = FakeCounters()
    result = begin(archive, budget=24, counters=counters)
    log = read_log(archive.events(result.run))
    profiled = [one for one in log.counted.values() if one.profiled]
    assert 1 <= len(profiled) <= 24 // 8
    assert len(log.evaluated) + len(profiled) == 24
    assert len(counters.profiles) == len(set(counters.profiles)) == len(profiled)
    parents = {p for one in log.proposed.values() for p in one.expansion.parents[:1]}
    assert parents == {one.program for one in log.counted.values()}, "every parent has a record, the free ones too"


def test_a_profiler_that_fails_is_asked_no_more(archive: Archive) -> None:
    counters = FakeCounters(fails=True)
    result = begin(archive, budget=40, counters=counters)
    errors = [one for one in read_log(archive.events(result.run)).counted.values() if one.error]
    assert len(errors) == len(counters.profiles) == 2
    assert result.evaluations == 38, "what failed took its time too"


def test_a_resumed_run_takes_profiles_from_the_log(tmp_path: Any) -> None:
    with Archive(tmp_path / "whole") as whole:
        begin(whole, budget=20, counters=FakeCounters())
        expected = canonical(whole)
    with Archive(tmp_path / "cut") as cut:
        judge, calls = Judge(), 0

        def stop() -> bool:
            nonlocal calls
            calls += 1
            return calls > 9

        first = FakeCounters()
        begin(cut, judge, budget=20, counters=first, stop_requested=stop)
        second = FakeCounters()
        go_on(cut, judge, counters=second)
        assert not set(first.profiles) & set(second.profiles)
        assert canonical(cut) == expected


def test_without_counters_nothing_changes(archive: Archive) -> None:
    result = begin(archive, budget=12)
    log = read_log(archive.events(result.run))
    assert not log.counted and len(log.evaluated) == 12


@pytest.mark.parametrize("limit", LIMITS)
def test_each_limit_has_moves_with_distinct_names(limit: str) -> None:
    names = [move.name for move in MOVES[limit]]
    assert len(names) == len(set(names)) >= 3
    assert set(names) <= set(EVERY_MOVE)


def test_kinds_of_choices() -> None:
    assert [choice_kind(key) for key in ("BLOCK", "ROW_ITEMS_2", "map:softmax_2", "call:linear:split")] == [
        "BLOCK",
        "ROW_ITEMS",
        "map",
        "split",
    ]


def test_a_move_prefers_the_kernel_that_limits() -> None:
    space = dict.fromkeys(("map:softmax_2", "map:mean_kernel", "fuse"), SPACE["fuse"])
    assert keys_of(EVERY_MOVE["streaming"], space, "mean_kernel_exact") == ["map:mean_kernel", "fuse"]
    assert keys_of(EVERY_MOVE["streaming"], space) == ["fuse"]


def test_a_move_up_goes_up() -> None:
    space = {"VEC": type(SPACE["BLOCK"])((1, 2, 4, 8), 1)}
    rng = random.Random(0)
    found = [moved(space, {"VEC": 2}, MOVES["memory"], rng) for _ in range(20)]
    assert {one[0]["VEC"] for one in found if one} == {4, 8}
    assert moved(space, {"VEC": 8}, MOVES["memory"], rng) is None, "there is nothing wider"


def proposals(limit: str, without: tuple[str, ...] = ()) -> list[Proposal]:
    space = {name: type(SPACE["BLOCK"])((1, 2, 4, 8), 2) for name in ("VEC", "ROW_ITEMS", "GEMM_K", "LANES", "OTHER")}
    settings = {"without": ["screener", "failure_memory", *without]}
    author = EngineAuthor(source(space), settings, static_check=lambda program: "")
    parent = author.engine.written(dict.fromkeys(space, 2))
    key = parent.program.key
    view = SearchView(0, 40, counted={key: Counted(program=key, round=0, source="ncu", limit=limit, cost=1)})
    ask = ProposalRequest(Expansion(number=1, operator="mutate", parents=(key,)), (parent,), view)
    return [author.propose(ask, random.Random(seed)) for seed in range(200)]


def test_the_engine_author_changes_what_may_relieve_the_limit() -> None:
    wider = sum(made.choices["VEC"] > 2 for made in proposals("memory"))
    assert wider > 100
    assert sum(made.choices["VEC"] > 2 for made in proposals("lds")) < 50
    assert sum(made.choices["VEC"] > 2 for made in proposals("memory", ("counters",))) < 60
    assert {made.notes.get("move") for made in proposals("memory")} == {None, "wider accesses"}
