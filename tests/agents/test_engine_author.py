"""The engine as author: what each of its parts changes, determinism, and results no worse than plain islands."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from compare_authors import GOOD, POOR, found
from landscape import SPACE, Judge, begin, go_on, write

from hipwright.agents.engine_author import EngineAuthor, choice_kind, similar_values
from hipwright.archive import Archive, export, read_log
from hipwright.records import Expansion
from hipwright.search import EngineSource, ProposalRequest, SearchView

KNOWN = {"BLOCK": 512, "UNROLL": 4, "fuse": True, "order": "tiles", "vector": 2}
TUNED = {"device": "a GPU", "choices": {**KNOWN, "BLOCK": 256}}
OFFER = {"known": ["k"], "neighbours": ["n"], "choices": {"k": KNOWN, "n": {"vector": 4, "fuse": True, "UNROLL": 8}}}


def author(settings: dict[str, Any]) -> EngineAuthor:
    return EngineAuthor(EngineSource(SPACE, write), settings, static_check=lambda program: "")


def proposals(folder: Path, without: list[str], **more: Any) -> list[dict[str, Any]]:
    """The choices that a seeded run with an archive snapshot proposed, in order."""
    settings = {**OFFER, "without": without, "tuned": more.pop("tuned", None)}
    with Archive(folder / "-".join(["run", *without])) as archive:
        begin(archive, Judge(), budget=24, seed=5, settings={"agents": settings}, source=author(settings), **more)
        log = read_log(archive.events(archive.run("latest").id))
        return [log.proposed[n].choices for n in sorted(log.proposed)]


@pytest.mark.parametrize("part", ["tuned", "archive_parents", "retrieval", "failure_memory", "screener"])
def test_proposals_change_when_a_part_is_removed(tmp_path: Path, part: str) -> None:
    everything = proposals(tmp_path / "a", [], tuned=TUNED)
    assert proposals(tmp_path / "b", [], tuned=TUNED) == everything
    assert proposals(tmp_path, [part], tuned=TUNED) != everything


def test_tuned_choices_are_the_first_answer(tmp_path: Path) -> None:
    default = {key: choice.default for key, choice in SPACE.items()}
    assert proposals(tmp_path / "a", [], tuned=TUNED)[:3] == [TUNED["choices"], default, KNOWN]
    assert proposals(tmp_path / "b", ["tuned"], tuned=TUNED)[:2] == [default, KNOWN]
    told = author({"tuned": TUNED})
    ask = ProposalRequest(
        Expansion(number=0, operator="default", action=dict(told.initial()[0])), (), SearchView(0, 40)
    )
    assert told.propose(ask, random.Random(0)).notes == {"author": "engine", "tuned": "a GPU"}
    assert author({"tuned": {"device": "a GPU", "choices": default}}).initial() == [{}]


def test_archive_parents_are_tried_right_after_the_engines_own_choices(tmp_path: Path) -> None:
    first, second, *_ = proposals(tmp_path, [])
    assert first == {key: choice.default for key, choice in SPACE.items()} and second == KNOWN
    assert KNOWN not in proposals(tmp_path, ["archive_parents"])[:2]
    same_as_default = {"known": ["d"], "choices": {"d": {"BLOCK": 64}}}
    assert author(same_as_default).initial() == [{}]


def test_retrieval_draws_what_served_similar_kernels() -> None:
    view = SearchView(0, 40)
    ask = ProposalRequest(Expansion(number=3, operator="random"), (), view)
    only = {**OFFER, "without": ["screener", "failure_memory"]}

    def share(settings: dict[str, Any]) -> float:
        made = [author(settings).propose(ask, random.Random(n)) for n in range(300)]
        return statistics.mean(m.choices["vector"] == 4 for m in made)

    assert share(only) > share({**only, "without": [*only["without"], "retrieval"]}) + 0.15
    made = [author(only).propose(ask, random.Random(n)) for n in range(50)]
    assert {key for m in made for key in m.notes.get("retrieved", [])} == {"vector", "fuse", "UNROLL"}


def test_a_remembered_failure_is_drawn_again(tmp_path: Path) -> None:
    """vector=8 without fusion fails on the landscape: the failure memory makes it rarer."""

    def failed(without: list[str]) -> int:
        count = 0
        for seed in range(5):
            settings = {"without": [*without, "screener"]}
            with Archive(tmp_path / f"{without}{seed}") as archive:
                begin(archive, Judge(), budget=32, seed=seed, settings={"agents": settings}, source=author(settings))
                log = read_log(archive.events(archive.run("latest").id))
                count += sum(not e.evaluation.passed for e in log.evaluated.values())
        return count

    assert failed([]) < failed(["failure_memory"])


def test_notes_say_how_a_program_came_about(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        begin(archive, Judge(), budget=24, seed=5, settings={"agents": OFFER}, source=author(OFFER))
        log = read_log(archive.events(archive.run("latest").id))
    notes = [p.notes for p in log.proposed.values()]
    assert all(n["author"] == "engine" for n in notes)
    screened = [n["screener"] for n in notes if "screener" in n]
    assert len(screened) == len(notes) - 2
    assert all(0 <= s["passes"] <= 1 and s["drawn"] == 4 for s in screened)
    assert any("gain" in s and "better" in s for s in screened) and any("retrieved" in n for n in notes)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    def exported(folder: str, stop_after: int | None) -> str:
        settings = {"agents": OFFER}
        with Archive(tmp_path / folder) as archive:
            judge = Judge()

            def stop() -> bool:
                return stop_after is not None and len(judge.calls) >= stop_after

            begin(archive, judge, budget=24, seed=9, settings=settings, source=author(OFFER), stop_requested=stop)
            if stop_after is not None:
                go_on(archive, Judge(), source=author(OFFER))
            return export(archive, "latest", canonical=True)

    assert exported("whole", None) == exported("resumed", 9)


def test_what_a_key_means_does_not_depend_on_the_kernel() -> None:
    assert choice_kind("map:softmax_mul_where") == choice_kind("map:gelu_2") == "map"
    assert choice_kind("split:batch_norm_rest") == "split:rest" != choice_kind("split:batch_norm_sum")
    assert choice_kind("BLOCK") == "BLOCK" and choice_kind("row_cache:add_layer_norm") == "row_cache"
    settings = {"neighbours": ["a", "b"], "choices": {"a": {"map:x": "lanes"}}, "likeness": {"a": 0.5}}
    assert similar_values(settings) == {"map": [("lanes", 0.5)]}


def test_a_neighbours_value_is_taken_only_where_it_is_an_option() -> None:
    settings = {"neighbours": ["n"], "choices": {"n": {"vector": 3, "order": "spirals"}}}
    ask = ProposalRequest(Expansion(number=3, operator="random"), (), SearchView(0, 40))
    made = [author(settings).propose(ask, random.Random(n)) for n in range(40)]
    assert all("retrieved" not in m.notes for m in made)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["toy", "rugged"])
def test_it_finds_no_less_than_plain_islands(place: str) -> None:
    """A smaller version of compare_authors.py (60 seeds), enough to show a real loss."""
    plain = [found(place, None, 24, seed) for seed in range(10)]
    ours = [found(place, {}, 24, seed) for seed in range(10)]
    assert statistics.mean(ours) <= statistics.mean(plain) * 1.01


@pytest.mark.slow
def test_poor_neighbours_do_little_harm_and_good_ones_help() -> None:
    plain = [found("toy", {}, 16, seed) for seed in range(10)]
    good = [found("toy", {"likely": GOOD}, 16, seed) for seed in range(10)]
    poor = [found("toy", {"likely": POOR}, 16, seed) for seed in range(10)]
    assert statistics.mean(good) < statistics.mean(plain)
    assert statistics.mean(poor) < statistics.mean(plain) * 1.15
