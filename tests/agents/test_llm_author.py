"""Language models as author: concurrent rounds, fixed and rejected answers, errors per proposal; also over HTTP."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from author_tools import answer_with, ask, evaluator, failed, passed, program, source, text_of, trial

from hipwright.agents.base import PromptLimits, Tools
from hipwright.agents.llm_author import LlmAuthor
from hipwright.agents.planner import strategies
from hipwright.archive import Archive, export
from hipwright.errors import BadInput, OutOfBudget, ProviderError
from hipwright.evaluation.pipeline import Evaluator
from hipwright.llm.answers.read import UnusableAnswer, read_answer
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.records import Request
from hipwright.llm.replay import Replay
from hipwright.llm.specs import parse_specs
from hipwright.records import Evaluation, Program
from hipwright.search import NoProposal, SearchView, new_run
from hipwright.search import run as search
from tests.llm.server import LocalProvider

OLD, NEW, OTHER = program("old"), program("new"), program("other")
RNG = random.Random(0)
EMPTY = SearchView(seed=1, budget=9)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "home") as opened:
        for one in (OLD, NEW, OTHER):
            opened.put(one)
        yield opened


def improved() -> SearchView:
    return SearchView(seed=1, budget=9, trials=(trial(0, OLD, passed(OLD, 9.0), best=True),))


# ---------------------------------------------------------------- what comes back


def test_a_candidate_says_how_it_came_about(archive: Archive) -> None:
    author, client = source(archive, lambda request: answer_with(NEW))
    one = ask(improved(), "improve", 4, [OLD])
    author.prepare([one])
    made = author.propose(one, RNG)
    assert made.program == NEW and made.redraw is False and made.choices == {}
    notes = json.loads(json.dumps(made.notes))
    assert notes["author"] == "llm" and notes["role"] == "optimizer" and notes["model"] == client.requests[0].model
    assert notes["calls"] == [client.requests[0].key] and notes["bottleneck"]["name"] == "narrow_access"
    assert notes["retrieved"] and "cost" not in json.dumps(notes)
    assert author.propose(one, RNG) == made and len(client.requests) == 1


def test_hazards_of_what_was_written_are_noted(archive: Archive) -> None:
    unguarded = program("bare", guard="")
    author, _ = source(archive, lambda request: answer_with(unguarded))
    made = author.propose(ask(EMPTY, "translate"), RNG)
    assert made.notes["hazards"] == ["missing_tail_guard"]
    author, client = source(archive, lambda request: answer_with(NEW))
    archive.put(unguarded)
    seen = SearchView(seed=1, budget=9, trials=(trial(0, unguarded, failed(unguarded)),))
    made = author.propose(ask(seen, "repair", action={"failed": unguarded.key, "of": 0, "tries": 1}), RNG)
    assert "missing_tail_guard in line 6" in text_of(client.requests[0]) and "hazards" not in made.notes
    assert made.notes["repairs"] == unguarded.key and made.notes["role"] == "translator"


def test_an_operator_of_the_engines_is_answered_too(archive: Archive) -> None:
    author, client = source(archive, lambda request: answer_with(NEW))
    author.prepare([ask(EMPTY, "default", 0), ask(improved(), "mutate", 1, [OLD])])
    assert [request.role for request in client.requests] == ["translator", "optimizer"]


def test_models_are_drawn_by_seed_number_and_role_alone(archive: Archive) -> None:
    def models() -> list[str]:
        author, client = source(archive, lambda request: answer_with(NEW))
        author.prepare([ask(EMPTY, "translate", number) for number in range(12)])
        return [request.model for request in client.requests]

    assert models() == models() and len(set(models())) > 1


# ---------------------------------------------------------------- answers that cannot be used


def test_a_malformed_answer_gets_its_one_precise_repair_prompt(archive: Archive) -> None:
    def script(request: Request) -> str:
        return "I would use float4." if request.index == 0 else answer_with(NEW)

    author, client = source(archive, script)
    made = author.propose(ask(EMPTY, "translate"), RNG)
    first, second = client.requests
    problem = read_answer("I would use float4.")
    assert isinstance(problem, UnusableAnswer)
    assert second.messages == (*first.messages, *second.messages[2:]) and second.index == 1
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2].text == "I would use float4." and second.messages[3].text == problem.repair
    assert second.model == first.model
    assert made.program == NEW and made.notes["unusable"] == [problem.kind] and len(made.notes["calls"]) == 2


@pytest.mark.parametrize("tries", [0, 1, 2])
def test_after_the_last_format_try_the_proposal_is_declined(archive: Archive, tries: int) -> None:
    limits = PromptLimits(prompt_tokens=40_000, format_tries=tries)
    author, client = source(archive, lambda request: "", limits=limits)
    one = ask(EMPTY, "translate")
    author.prepare([one])
    with pytest.raises(NoProposal, match=f"no usable answer in {tries + 1} tries") as declined:
        author.propose(one, RNG)
    assert len(client.requests) == tries + 1 and len(declined.value.notes["calls"]) == tries + 1
    assert declined.value.notes["author"] == "llm" and json.dumps(declined.value.notes)
    assert all(message.text for request in client.requests for message in request.messages)


def test_nothing_to_repair_is_declined_without_a_call(archive: Archive) -> None:
    author, client = source(archive, lambda request: answer_with(NEW))
    one = ask(EMPTY, "repair", action={"failed": OLD.key, "tries": 1})
    author.prepare([one])
    with pytest.raises(NoProposal, match="no failed program"):
        author.propose(one, RNG)
    assert client.requests == []


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ('[{"title": "A", "change": "a"}, {"title": "B"}]', ["A", "B"]),
        ('Here:\n```json\n{"strategies": [{"title": "A"}, {"name": "B"}]}\n```', ["A", "B"]),
        ('[{"title": "A", "change": "a"}, {"title": "B", "cha', ["A"]),
        ('[{"title": "A"}, {"title": "a!"}, {"title": "B"}]', ["A", "B"]),
        ("1. **Wide loads**: use float4\n2) Fuse\n", ["Wide loads", "Fuse"]),
        ("No idea.", []),
        ("{" * 9000, []),
        ('{"title": ["A"]} {"title": 3} {"title": "--"} []', ["3"]),
        ("".join(f'{{"title": "s{i}"}}' for i in range(30)), [f"s{i}" for i in range(8)]),
    ],
)
def test_plans_are_read_leniently(text: str, titles: list[str]) -> None:
    assert [one.title for one in strategies(text)] == titles


def test_without_a_readable_plan_the_model_follows_its_own_idea(archive: Archive) -> None:
    author, client = source(archive, lambda r: "Let me think." if r.role == "planner" else answer_with(NEW))
    made = author.propose(ask(improved(), "plan", 4, [OLD]), RNG)
    assert made.notes["plan"] == {"listed": []} and "exactly one change" in text_of(client.requests[1])


# ---------------------------------------------------------------- a round, and what goes wrong in it


def test_the_first_calls_of_a_round_go_out_together_and_chains_side_by_side(archive: Archive) -> None:
    meeting = threading.Barrier(3, timeout=20)

    def script(request: Request) -> str:
        if request.role == "optimizer":
            meeting.wait()  # all three second calls are open at once
        return '[{"title": "A", "change": "a"}]' if request.role == "planner" else answer_with(NEW)

    author, client = source(archive, script)
    asks = [ask(improved(), "plan", number, [OLD]) for number in (4, 5, 6)]
    author.prepare([*asks, ask(improved(), "translate", 7)])
    assert client.together == [4] and len(client.requests) == 7
    assert [author.propose(one, RNG).program for one in asks] == [NEW] * 3


def test_an_empty_budget_fails_its_own_proposal_only(archive: Archive) -> None:
    def script(request: Request) -> str | Exception:
        return OutOfBudget("$1.00 would be passed") if request.number == 5 else answer_with(NEW)

    author, _ = source(archive, script)
    asks = [ask(EMPTY, "translate", number) for number in (4, 5)]
    author.prepare(asks)
    assert author.propose(asks[0], RNG).program == NEW
    for _ in range(2):
        with pytest.raises(OutOfBudget, match="would be passed"):
            author.propose(asks[1], RNG)


def test_a_budget_that_ends_within_a_chain_is_raised_by_propose(archive: Archive) -> None:
    author, _ = source(archive, lambda r: OutOfBudget("spent") if r.index == 1 else "no program here")
    one = ask(EMPTY, "translate", 4)
    author.prepare([one])
    with pytest.raises(OutOfBudget):
        author.propose(one, RNG)


@pytest.mark.parametrize("index", [0, 1])
def test_a_provider_that_stays_away_ends_the_round_when_all_others_are_done(archive: Archive, index: int) -> None:
    def script(request: Request) -> str | Exception:
        if request.number == 4:
            return ProviderError("stays away", retryable=True) if request.index == index else "no program"
        return answer_with(NEW) if request.index == 1 else "no program"

    author, client = source(archive, script)
    with pytest.raises(ProviderError, match="stays away") as raised:
        author.prepare([ask(EMPTY, "translate", number) for number in (4, 5)])
    assert raised.value.retryable
    assert [(r.number, r.index) for r in client.requests if r.number == 5] == [(5, 0), (5, 1)], "the other went on"


def test_a_program_that_the_archive_lacks_is_no_models_fault(archive: Archive) -> None:
    author, _ = source(archive, lambda request: answer_with(NEW))
    seen = SearchView(seed=1, budget=9, settings={"agents": {"neighbours": ["0" * 20]}})
    with pytest.raises(BadInput):
        author.prepare([ask(seen, "translate")])


def test_an_ask_that_was_not_prepared_is_answered_and_kept_apart(archive: Archive) -> None:
    author, client = source(archive, lambda r: answer_with(NEW if r.role == "translator" else OTHER))
    first, second = ask(EMPTY, "translate", 4), ask(improved(), "improve", 4, [OLD])
    author.prepare([first])
    assert author.propose(second, RNG).program == OTHER, "same number, other expansion"
    assert author.propose(ask(EMPTY, "translate", 5), RNG).program == NEW and len(client.requests) == 3


# ---------------------------------------------------------------- over HTTP, judged by the real verifier

CLIPPED = """import torch


class Model(torch.nn.Module):
    def __init__(self, top):
        super().__init__()
        self.top = top

    def forward(self, x):
        return torch.clamp(x, -1.0, self.top) * 0.5


def get_inputs():
    return [2.0 * torch.randn(7, 33)]


def get_init_inputs():
    return [1.5]
"""
RIGHT = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void clipped(const float* x, float* y, float top, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] != x[i] ? x[i] : 0.5f * fminf(fmaxf(x[i], -1.f), top);
}
'''

def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    clipped[cdiv(x.numel(), 256), 256](x, y, self.top, x.numel())
    return y
"""
BROKEN = RIGHT.replace("if (i < n) ", "if (i <= n) ")


def model(messages: list[dict[str, str]], call: int) -> str:
    """Answers with the broken program, and with the correct one when the evidence names the cause."""
    prompt = messages[-1]["content"]
    seen = "verdict: out_of_bounds" in prompt and "if (i <= n)" in prompt
    return f"The tail is guarded.\n\n```python\n{RIGHT if seen else BROKEN}```"


@dataclass
class Remembered:
    """The real verifier, cached per program over all tests."""

    judge: Evaluator
    found: dict[str, Evaluation] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        return self.judge.fingerprint

    def evaluate(self, written: Program) -> Evaluation:
        if written.key not in self.found:
            self.found[written.key] = self.judge.evaluate(written)
        return self.found[written.key]


@pytest.fixture(scope="module")
def clipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remembered]:
    folder = tmp_path_factory.mktemp("clipped")
    (folder / "clipped.py").write_text(CLIPPED)
    with evaluator(folder / "clipped.py") as judge:
        yield Remembered(judge)


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_model_that_is_shown_the_evidence_repairs_its_program(
    wire: str, clipped: Remembered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LocalProvider.environment().items():
        monkeypatch.setenv(name, value)
    with LocalProvider(model) as provider:
        task = clipped.judge.handle.task
        settings = {"round": 1, "agents": {"llm": True, "share": 1.0, "repairs": 5}}
        begun = new_run(task, ("cpu",), budget=2, policy_name="best_of_n", seed=3, settings=settings)
        calls = MemoryCallLog()

        def searched(home: str, client: Client) -> tuple[Any, str]:
            lineup = parse_specs([provider.spec(wire)])
            with Archive(tmp_path / home) as archive, client:
                tools = Tools(client, lineup, task, CLIPPED, ("cpu",), archive)
                result = search(archive, begun, task, evaluator=clipped, source=LlmAuthor(tools))
                return result, export(archive, begun.id, canonical=True)

        result, first = searched("first", Client(calls, Budget(SpendingLimits())))
        assert result.evaluations == 2 and result.evaluation is not None and result.evaluation.passed
        assert result.best == Program(text=RIGHT).key
        sent = [seen.messages for seen in provider.answered]
        assert len(sent) == 2 and "of argument x (read)" in sent[1][-1]["content"]
        assert str(tmp_path) not in json.dumps([seen.body for seen in provider.requests])

        _, second = searched("second", Client(Replay(calls), Budget(SpendingLimits())))
        assert second == first and len(provider.requests) == 2, "a replay asks nobody"
