"""The pipeline: assignment of asks, the engine in place of models, screening, the archive snapshot."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from author_tools import program
from compare_authors import GOOD
from landscape import SPACE, TASK, Judge, begin, write

from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.pipeline import Pipeline, snapshot
from hipwright.agents.screening.screener import LlmScreener
from hipwright.archive import Archive, read_log
from hipwright.errors import OutOfBudget, ProviderError
from hipwright.llm.records import ModelAnswer, Request
from hipwright.records import Evaluation, Expansion, Task, Workload
from hipwright.search import EngineSource, NoProposal, Proposal, ProposalRequest, SearchView, Trial, new_run, run
from hipwright.search.policies.llm_share import MODEL_OPERATORS


class Writer:
    """A scripted source of models: a result per proposal number."""

    def __init__(self, script: dict[int, Any], in_prepare: Exception | None = None) -> None:
        self.script, self.in_prepare, self.prepared = script, in_prepare, list[int]()

    def initial(self) -> Sequence[dict[str, Any]]:
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        self.prepared += [ask.expansion.number for ask in asks]
        if self.in_prepare is not None:
            raise self.in_prepare

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        made = self.script[ask.expansion.number]
        if isinstance(made, Exception):
            raise made
        return Proposal(program=made, notes={"model": "m"}, redraw=False)


def engine(problem: Any = lambda program: "") -> EngineAuthor:
    return EngineAuthor(EngineSource(SPACE, write), {}, static_check=problem)


def seen() -> SearchView:
    """A view with one verified program of the engine."""
    made = EngineSource(SPACE, write).written({})
    from hipwright.archive import Proposed

    proposed = Proposed(
        expansion=Expansion(number=0, operator="default"), round=0, program=made.program.key, choices=made.choices
    )
    return SearchView(1, 40, (Trial(proposed, Judge().evaluate(made.program)),))


def asks(*operators: str, view: SearchView | None = None) -> list[ProposalRequest]:
    view = view or seen()
    first = view.next_number
    return [
        ProposalRequest(Expansion(number=first + n, operator=name, seed=1), (), view)
        for n, name in enumerate(operators)
    ]


def rng() -> random.Random:
    return random.Random(0)


def test_each_ask_goes_to_its_author() -> None:
    author = Writer({2: program("a")})
    pipeline = Pipeline(engine(), author, {})
    mutate, improve = asks("mutate", "improve")
    pipeline.prepare([mutate, improve])
    assert author.prepared == [2]
    assert pipeline.propose(mutate, rng()).notes["author"] == "engine"
    llm_program = pipeline.propose(improve, rng())
    assert llm_program.program == program("a") and llm_program.notes["author"] == "llm" and not llm_program.redraw
    assert llm_program.notes["screener"]["passes"] < 1


@pytest.mark.parametrize("operator", MODEL_OPERATORS)
def test_the_engine_takes_over_when_the_budget_is_spent(operator: str) -> None:
    spent = OutOfBudget("$1.00 of $1.00 are spent")
    for author in (Writer({1: spent}), Writer({}, in_prepare=spent)):
        pipeline = Pipeline(engine(), author, {})
        (ask,) = asks(operator)
        pipeline.prepare([ask])
        made = pipeline.propose(ask, rng())
        assert made.notes["author"] == "engine" and made.notes["instead_of"] == operator
        assert "$1.00" in made.notes["why"] and made.choices
    assert Pipeline(engine(), None, {}).propose(ask, rng()).notes["instead_of"] == operator


def test_the_engine_takes_over_with_its_own_program_where_nothing_was_tried() -> None:
    (ask,) = asks("translate", view=SearchView(1, 40))
    made = Pipeline(engine(), None, {}).propose(ask, rng())
    assert made.choices == {key: choice.default for key, choice in SPACE.items()}


@pytest.mark.parametrize("operator", MODEL_OPERATORS)
def test_the_engine_goes_on_where_a_model_gives_no_answer(operator: str) -> None:
    away = ProviderError("it stays away", retryable=True)
    for author in (Writer({1: away}, in_prepare=away), Writer({1: away}), Writer({1: ProviderError("no key")})):
        pipeline = Pipeline(engine(), author, {"away": "engine"})
        (ask,) = asks(operator)
        pipeline.prepare([ask])
        made = pipeline.propose(ask, rng())
        assert made.notes["author"] == "engine" and made.notes["instead_of"] == operator and made.choices


def test_what_was_answered_before_a_failure_counts() -> None:
    away = ProviderError("it stays away", retryable=True)
    author = Writer({1: away, 2: program("a")}, in_prepare=away)
    pipeline = Pipeline(engine(), author, {"away": "engine"})
    one, two = asks("improve", "improve")
    pipeline.prepare([one, two])
    assert pipeline.propose(one, rng()).notes["instead_of"] == "improve"
    assert pipeline.propose(two, rng()).program == program("a")


def test_a_providers_failure_pauses_the_run() -> None:
    away = ProviderError("it stays away", retryable=True)
    for author in (Writer({}, in_prepare=away), Writer({1: away})):
        with pytest.raises(ProviderError):
            Pipeline(engine(), author, {}).prepare(asks("improve"))


def test_a_declined_proposal_stays_declined() -> None:
    pipeline = Pipeline(engine(), Writer({1: NoProposal("no kernel in the answer", {"kind": "no_kernel"})}), {})
    (ask,) = asks("improve")
    pipeline.prepare([ask])
    with pytest.raises(NoProposal, match="no kernel") as caught:
        pipeline.propose(ask, rng())
    assert caught.value.notes == {"kind": "no_kernel"}


def outcomes(pipeline: Pipeline, many: list[ProposalRequest]) -> list[str]:
    pipeline.prepare(many)
    told = []
    for ask in many:
        try:
            told.append(pipeline.propose(ask, rng()).notes["author"])
        except NoProposal as declined:
            assert declined.notes["screened_out"] and "screened out" in str(declined)
            told.append("out")
    return told


def test_poor_proposals_of_models_are_screened_out() -> None:
    bad = program("b").key
    author = engine(lambda found: "wave_size" if found.key == bad else "")
    script = {1: program("a"), 2: program("b")}
    many = asks("improve", "improve")
    assert outcomes(Pipeline(author, Writer(script), {}), many) == ["llm", "out"]
    assert outcomes(Pipeline(author, Writer(script), {"without": ["screener"]}), many) == ["llm", "llm"]


def test_never_more_than_half_a_round_and_never_the_only_one() -> None:
    author = engine(lambda found: "lds_limit")
    script = {n: program(f"p{n}") for n in range(1, 5)}
    assert (
        outcomes(Pipeline(author, Writer(script), {}), asks("improve", "improve", "improve", "plan")).count("out") == 2
    )
    assert (
        outcomes(Pipeline(author, Writer(script), {}), asks("improve", "mutate", "mutate", "mutate")).count("out") == 0
    )


class Asked:
    """A client that answers by role and program."""

    def __init__(self, reply: Any) -> None:
        self.reply, self.requests = reply, list[Request]()

    def ask_all(self, requests: Sequence[Request]) -> list[Any]:
        self.requests += requests
        return [self.reply(request) for request in requests]

    def choose(self, role: str, rng: random.Random) -> str:
        return f"test:{role}"


def screening(tmp_path: Path, reply: Any) -> tuple[Asked, LlmScreener]:
    from hipwright.agents.base import Tools

    client = Asked(reply)
    archive: Any = None
    tools = Tools(client=client, lineup=client, task=TASK, graph_text=TASK.source, targets=("gfx942",), archive=archive)  # type: ignore[arg-type]
    return client, LlmScreener(tools)


def test_a_model_may_rank_the_models_proposals(tmp_path: Path) -> None:
    def reply(request: Request) -> Any:
        poor = "scale_b" in request.messages[0].text
        text = f'```json\n{{"compile": {0.2 if poor else 0.9}, "plausible": 0.8}}\n```'
        return ModelAnswer(request=request.key, text=text)

    client, screener = screening(tmp_path, reply)
    pipeline = Pipeline(engine(), Writer({1: program("a"), 2: program("b")}), {}, screener)
    many = asks("improve", "improve")
    assert outcomes(pipeline, many) == ["llm", "out"]
    assert [(r.role, r.number, r.index) for r in client.requests] == [("screener", 1, 0), ("screener", 2, 0)]
    assert pipeline.propose(many[0], rng()).notes["screener"] == {"author": "llm", "compiles": 0.9, "passes": 0.72}


def test_a_screener_that_cannot_be_paid_or_read_lets_everything_through(tmp_path: Path) -> None:
    for reply in (lambda r: OutOfBudget("spent"), lambda r: ModelAnswer(request=r.key, text="No idea.")):
        _, screener = screening(tmp_path, reply)
        script = {1: program("a"), 2: program("b")}
        assert outcomes(Pipeline(engine(), Writer(script), {}, screener), asks("improve", "improve")) == ["llm", "llm"]
    _, screener = screening(tmp_path, lambda r: ProviderError("away"))
    with pytest.raises(ProviderError):
        Pipeline(engine(), Writer(script), {}, screener).prepare(asks("improve", "improve"))


# ---------------------------------------------------------------- what the archive offers


def other_task(name: str, source: str) -> Task:
    return Task(name=name, source=source, workloads=(Workload(name="given"),))


def test_a_run_starts_with_what_the_archive_knows(tmp_path: Path) -> None:
    softmax = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x * 2, dim=-1)\n"
    mine = other_task("mine", softmax)
    alike = other_task("alike", softmax.replace("* 2", "+ 1"))
    with Archive(tmp_path) as archive:
        assert snapshot(archive, mine, ("gfx942", "cpu")) == {
            "known": [],
            "neighbours": [],
            "choices": {},
            "likeness": {},
        }
        for task in (mine, alike):
            plan = new_run(task, ("gfx942", "cpu"), budget=12, seed=3)

            class OfTask(Judge):
                def evaluate(self, program: Any, key: str = task.key) -> Evaluation:
                    return Evaluation.from_dict({**super().evaluate(program).to_dict(), "task": key})

            run(archive, plan, task, evaluator=OfTask(), source=EngineSource(SPACE, write))
        offer = snapshot(archive, mine, ("gfx942", "cpu"))
        log = read_log(archive.events(archive.runs()[0].id))
        assert offer["known"] and offer["neighbours"]
        assert set(offer["choices"]) == {*offer["known"], *offer["neighbours"]}
        assert offer["choices"][offer["known"][0]] in [p.choices for p in log.proposed.values()]
        nothing = snapshot(archive, mine, ("gfx942",), without=frozenset({"archive_parents", "retrieval"}))
        assert nothing["known"] == nothing["neighbours"] == []
        author = EngineAuthor(EngineSource(SPACE, write), offer, static_check=lambda program: "")
        assert author.initial()[1] == {"choices": offer["choices"][offer["known"][0]]}


def test_a_whole_run_of_both_authors_finds_a_program(tmp_path: Path) -> None:
    """Both authors share one population; when all calls to models fail, the engine's program remains."""
    script = {n: NoProposal("no answer") for n in range(400)}
    settings = {"agents": {"llm": True, "share": 0.5, **GOOD}}
    with Archive(tmp_path) as archive:
        pipeline = Pipeline(engine(), Writer(script), settings["agents"])
        result = begin(archive, Judge(), budget=16, seed=2, settings=settings, source=pipeline)
        operators = {p.expansion.operator for p in read_log(archive.events(archive.run("latest").id)).proposed.values()}
    assert result.program is not None and result.evaluations == 16
    assert operators & set(MODEL_OPERATORS)
