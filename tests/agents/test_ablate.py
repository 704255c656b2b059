"""The ablation: arms, figures with intervals, equal budgets, reuse of finished runs, resumption."""

from __future__ import annotations

import csv as reader
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import exp
from pathlib import Path
from typing import Any

import pytest
import typer
from author_tools import answer_with, program
from landscape import SPACE, Judge, write

from hipwright.agents.ablation.arms import Arm, ArmOutcome, arms, csv, table
from hipwright.agents.ablation.run import AblationPlan, Opened, TranslationOnly, ablate
from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.pipeline import Pipeline
from hipwright.archive import Archive, Evaluated, Proposed, RunLog, read_log
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Expansion, Program, Task, Workload
from hipwright.search import EngineSource, NoProposal, Proposal, ProposalRequest, SearchView
from tests import warm
from tests.llm.server import LocalProvider

SOFTMAX = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x * {n}, dim=-1)\n"


def test_arms_of_a_command_line() -> None:
    found = arms(["single-shot", "best-of-n", "pipeline"], ["retrieval", "screener"], ["islands", "beam"])
    assert [(a.name, a.policy, a.without) for a in found] == [
        ("single-shot", "best_of_n", ()),
        ("best-of-n", "best_of_n", ()),
        ("pipeline", "islands", ()),
        ("pipeline without retrieval", "islands", ("retrieval",)),
        ("pipeline without screener", "islands", ("screener",)),
        ("pipeline by beam", "beam", ()),
    ]
    with pytest.raises(BadInput, match="unknown arm"):
        arms(["two-shot"], [], [])


def outcomes(arm: str, factor: Callable[[int, int], float], tasks: int = 6, seeds: int = 3) -> list[ArmOutcome]:
    """Curves that end at 10 (t + 1) times a factor of task and seed."""
    return [
        ArmOutcome(task=f"t{t}", arm=arm, seed=s, run="r", curve=(20.0 * (t + 1), 10.0 * (t + 1) * factor(t, s)))
        for t in range(tasks)
        for s in range(seeds)
    ]


def test_ratios_are_paired_over_tasks_and_seeds() -> None:
    rng = random.Random(1)
    noise = {(t, s): rng.uniform(0.9, 1.2) for t in range(6) for s in range(3)}
    printed = [
        *outcomes("a", lambda t, s: noise[t, s]),
        *outcomes("same", lambda t, s: noise[t, s]),
        *outcomes("slower", lambda t, s: 1.1 * noise[t, s]),
        *outcomes("mixed", lambda t, s: noise[t, s] * (1.3 if t % 2 else 0.8)),
    ]
    a, same, slower, mixed = table(printed, ["a", "same", "slower", "mixed"], "a")
    assert a.ratio == 1.0 and a.interval == (1.0, 1.0) and a.pairs == 18
    assert same.ratio == 1.0
    assert slower.ratio == pytest.approx(1.1) and slower.interval == pytest.approx((1.1, 1.1))
    assert mixed.interval is not None and mixed.interval[0] < 1.0 < mixed.interval[1]
    assert mixed.ratio == pytest.approx((1.3 * 0.8) ** 0.5)
    assert table(printed, ["a", "mixed"], "a")[1] == mixed


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, hits = random.Random(4), 0
    for trial in range(60):
        shift = {(t, s): rng.gauss(0.1, 0.1) for t in range(12) for s in range(2)}
        printed = outcomes("a", lambda t, s: 1.0, 12, 2)
        printed += outcomes("b", lambda t, s, k=shift: exp(k[t, s]), 12, 2)  # type: ignore[misc]
        low, high = table(printed, ["a", "b"], "a", seed=trial)[1].interval or (0, 0)
        hits += low <= exp(0.1) <= high
    assert 50 <= hits <= 60


def test_runs_without_a_result_are_counted_and_not_compared() -> None:
    printed = [*outcomes("a", lambda t, s: 1.0, 2, 1), *outcomes("b", lambda t, s: 1.02, 2, 1)[:1]]
    printed.append(ArmOutcome(task="t1", arm="b", seed=0, run="r", curve=(None, None), failed=2))
    a, b = table(printed, ["a", "b"], "a")
    assert (b.nothing, b.failed, b.pairs, b.runs) == (1, 2, 1, 2)
    assert b.ratio == pytest.approx(1.02)
    assert (a.reached, a.after, b.reached, b.after) == (2, 2.0, 1, None)
    assert a.excess == (2.0, 1.0) and b.excess == (2.0, 1.02)


def test_a_log_becomes_a_curve() -> None:
    log = RunLog()
    printed = [("pass", 5.0), ("wrong_value", None), ("pass", 3.0), ("pass", 4.0)]
    for n, (status, score) in enumerate(printed):
        e = Evaluation(
            task="t", program=f"p{n}", status=status, score=score, score_kind="estimate" if score else "none"
        )  # type: ignore[arg-type]
        log.evaluated[n] = Evaluated(evaluation=e, cached=n == 3)
        log.proposed[n] = Proposed(expansion=Expansion(number=n, operator="random"), round=0, program=f"p{n}")
    from hipwright.agents.ablation.arms import outcome

    found = outcome(log, task="t", arm="a", seed=0, run="r", budget=6, known=False)
    assert found.curve == (5.0, 5.0, 3.0, 3.0, 3.0, 3.0) and found.best == 3.0
    assert (found.failed, found.cached, found.evaluations, found.score_kind) == (1, 1, 4, "estimate")


# ---------------------------------------------------------------- runs


class TaskJudge(Judge):
    """Judges with times that differ by task; raises KeyboardInterrupt after a number of calls."""

    task = ""
    slower = 1.0
    stop_after: int | None = None

    def evaluate(self, program: Program) -> Evaluation:
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        printed = super().evaluate(program).to_dict()
        score = printed["score"] * self.slower if printed["score"] is not None else None
        return Evaluation.from_dict({**printed, "task": self.task, "score": score})


class Bench:
    """Two artificial tasks, with a count of their evaluations."""

    def __init__(self) -> None:
        self.judges: dict[str, TaskJudge] = {}

    @contextmanager
    def open(self, path: Path) -> Iterator[Opened]:
        task = Task(name=path.stem, source=SOFTMAX.format(n=len(path.stem)), workloads=(Workload(name="given"),))
        judge = self.judges.setdefault(path.stem, TaskJudge())
        judge.task, judge.slower = task.key, 1.0 + len(path.stem)
        yield Opened(task, EngineSource(SPACE, write), judge)

    @property
    def calls(self) -> int:
        return sum(len(judge.calls) for judge in self.judges.values())


@contextmanager
def source(archive: Archive, run: Any, task: Task, engine: EngineSource) -> Iterator[Pipeline]:
    settings = run.settings["agents"]
    yield Pipeline(EngineAuthor(engine, settings, static_check=lambda program: ""), None, settings)


def plan(out: Path, **more: Any) -> AblationPlan:
    given = arms(["single-shot", "best-of-n", "plain", "pipeline"], ["retrieval", "archive_parents", "screener"], [])
    known: dict[str, Any] = {
        "tasks": [Path("one.py"), Path("other.py")],
        "arms": given,
        "reference": "pipeline",
        "source": source,
        "targets": ("gfx942", "cpu"),
        "budget": 8,
        "seeds": 2,
        "out": out,
    }
    return AblationPlan(**{**known, **more})


def test_every_arm_gets_the_same_budget_and_evaluations_are_shared(tmp_path: Path) -> None:
    bench = Bench()
    found = ablate(plan(tmp_path), bench.open)
    assert {(o.arm, o.evaluations) for o in found.outcomes} == {
        (row.arm, 1 if row.arm == "single-shot" else 8) for row in found.rows
    }
    assert len(found.outcomes) == 2 * 7 * 2 and found.score_kind == "estimate"
    assert bench.calls < sum(o.evaluations for o in found.outcomes) + 2 * 6
    assert any("6 evaluations of the bare engine" in note for note in found.notes)
    shot = found.rows[0]
    assert shot.arm == "single-shot" and shot.ratio is not None and shot.ratio > 1.0
    again = Bench()
    second = ablate(plan(tmp_path), again.open)
    assert again.calls == 0 and all(o.known for o in second.outcomes)
    assert second.rows == found.rows


def test_an_arm_without_a_part_takes_nothing_from_it(tmp_path: Path) -> None:
    ablate(plan(tmp_path), Bench().open)
    with Archive(tmp_path / "runs") as archive:
        for run in archive.runs():
            agents = run.settings.get("agents")
            notes = [p.notes for p in read_log(archive.events(run.id)).proposed.values()]
            if agents is None:
                assert all(not n for n in notes)
                continue
            assert agents["known"] and agents["neighbours"]
            assert any("screener" in n for n in notes) == ("screener" not in agents["without"])
            assert not ("retrieval" in agents["without"] and any("retrieved" in n for n in notes))


def test_an_interrupted_ablation_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole = ablate(plan(tmp_path / "whole"), Bench().open)
    stopped = Bench()
    with stopped.open(Path("other.py")):
        stopped.judges["other"].stop_after = 11
    with pytest.raises(KeyboardInterrupt):
        ablate(plan(tmp_path / "stopped"), stopped.open)
    rest = Bench()
    found = ablate(plan(tmp_path / "stopped"), rest.open)
    assert found.rows == whole.rows and any(o.known for o in found.outcomes)
    assert 0 < rest.calls < 11 + 100
    assert [o.curve for o in found.outcomes] == [o.curve for o in whole.outcomes]


def test_what_cannot_be_compared_is_bad_input(tmp_path: Path) -> None:
    for wrong in ({"tasks": []}, {"reference": "plain without all"}, {"tasks": [Path("a/x.py"), Path("b/x.py")]}):
        with pytest.raises(BadInput):
            ablate(plan(tmp_path, **wrong), Bench().open)


def test_the_csv_has_a_line_for_each_run(tmp_path: Path) -> None:
    found = ablate(plan(tmp_path, arms=[Arm(name="pipeline", kind="pipeline")], seeds=1), Bench().open)
    rows = list(reader.DictReader(io.StringIO(csv(found))))
    assert [(r["task"], r["arm"], r["seed"]) for r in rows] == [("one", "pipeline", "0"), ("other", "pipeline", "0")]
    assert float(rows[0]["after_8"]) == float(rows[0]["best"]) == found.outcomes[0].best


def test_prompting_alone_never_falls_back_on_the_engine() -> None:
    class Spent:
        def initial(self) -> list[dict[str, Any]]:
            return [{}]

        def prepare(self, asks: Any) -> None:
            self.asks = [ask.expansion.operator for ask in asks]

        def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
            assert ask.expansion.operator == "translate" and not ask.parents
            program = Program(text=str(ask.expansion.number))
            return Proposal(program=program, notes={"instead_of": "translate"} if ask.expansion.number else {})

    inner = Spent()
    asks = [
        ProposalRequest(Expansion(number=n, operator="random", parents=("p",)), (), SearchView(0, 4)) for n in range(2)
    ]
    alone = TranslationOnly(inner)
    alone.prepare(asks)
    assert inner.asks == ["translate", "translate"]
    assert alone.propose(asks[0], random.Random(0)).program.text == "0"
    with pytest.raises(NoProposal):
        alone.propose(asks[1], random.Random(0))


@pytest.mark.slow
def test_the_command_on_real_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hipwright.cli.ablate import ablate as command

    app = typer.Typer()
    app.command()(command)
    arguments = ["examples/bias_gelu.py", "examples/transposed_add.py", "--budget", "2", "--seeds", "1", "--fill", "1"]
    arguments += ["--arms", "single-shot,pipeline", "--without", "screener", "--out", str(tmp_path)]
    shown = []
    for more in ([], ["--json"]):
        with warm.zygotes():
            assert typer.main.get_command(app)(args=[*arguments, *more], standalone_mode=False) == 0
        shown.append(capsys.readouterr().out)
    assert re.search(r"pipeline without screener .* 1\.000", shown[0]) and "ESTIMATES" in shown[0]
    printed = json.loads(shown[1])
    assert [row["arm"] for row in printed["rows"]] == ["single-shot", "pipeline", "pipeline without screener"]
    assert all(o["known"] and o["curve"][0] > 0 for o in printed["outcomes"])
    assert json.loads((tmp_path / "ablation.json").read_text()) == printed


class TextJudge(Judge):
    """Passes every program; longer programs take longer."""

    def evaluate(self, program: Program) -> Evaluation:
        self.calls.append(program.key)
        score = 1.0 + len(program.text) / 1000
        return Evaluation(task="t", program=program.key, status="pass", score=score, score_kind="estimate")


def test_models_against_each_other_over_real_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """single-shot makes one call, best-of-n one per evaluation; in the pipeline engine and models share the run."""
    from hipwright.api.ablate import model_authors
    from hipwright.api.models import ModelOptions
    from hipwright.llm.specs import parse_specs

    def reply(messages: list[dict[str, str]], call: int) -> str:
        return answer_with(program(f"m{call}"))

    @contextmanager
    def opened(path: Path) -> Iterator[Opened]:
        task = Task(name=path.stem, source=SOFTMAX.format(n=2), workloads=(Workload(name="given"),))
        yield Opened(task, EngineSource(SPACE, write), TextJudge())

    with LocalProvider(reply) as provider:
        for name, value in provider.environment().items():
            monkeypatch.setenv(name, value)
        spec = provider.spec("compatible")
        assert parse_specs([spec]).specs()
        given = arms(["single-shot", "best-of-n", "pipeline"], [], [])
        wanted = plan(
            tmp_path, tasks=[Path("one.py")], arms=given, seeds=1, budget=7, **model_authors(ModelOptions(llm=(spec,)))
        )
        found = {o.arm: o for o in ablate(wanted, opened).outcomes}
        asked = len(provider.answered)
        assert ablate(wanted, opened).rows and len(provider.answered) == asked
    assert {name: o.evaluations for name, o in found.items()} == {"single-shot": 1, "best-of-n": 7, "pipeline": 7}
    with Archive(tmp_path / "runs") as archive:
        authors = {
            name: [p.notes.get("author") for p in read_log(archive.events(o.run)).proposed.values()]
            for name, o in found.items()
        }
    assert set(authors["single-shot"]) == set(authors["best-of-n"]) == {"llm"}
    assert set(authors["pipeline"]) == {"engine", "llm"} and asked >= 9
