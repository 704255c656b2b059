"""Conversations with the environment: answers are sampled in batches while earlier answers are being judged.

A batch is some prompts with some conversations each. `start` samples every first answer and hands it to the judge;
`finish` waits, and samples the repairs of what was refused. Between the two lies whatever else there is to do: the loop
trains on the batch before, and starts the one after (docs/rl.md has the picture).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from hipwright.errors import BadInput, HipwrightError
from hipwright.records import content_key
from hipwright.train.forms import PromptForm
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem, Turn
from hipwright.train.rl.exemplars import ExemplarSettings
from hipwright.train.rl.policy import PolicyModel, SampledAnswer
from hipwright.train.rl.settings import RLSettings


class OutcomeScorer(Protocol):
    """What the loops need of `hipwright.train.environment.Environment`."""

    judge: Any
    reward: Callable[[Sequence[AnswerOutcome]], list[ScoredOutcome]]

    def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Future[AnswerOutcome]:
        """The outcome to come."""
        ...


@dataclass
class RolloutAnswer:
    """One turn. scored: set once its group is judged."""

    prompt: list[int]
    sample: SampledAnswer
    text: str
    outcome: AnswerOutcome | None = None
    scored: ScoredOutcome | None = None


@dataclass
class Talk:
    """One conversation. slot: its prompt's number in the batch."""

    slot: int
    problem: TrainingProblem
    context: str
    answers: list[RolloutAnswer] = field(default_factory=list)
    waiting: Future[AnswerOutcome] | None = None

    @property
    def history(self) -> list[Turn]:
        """The turns that were judged."""
        return [Turn(completion=one.text, outcome=one.outcome) for one in self.answers if one.outcome is not None]


@dataclass
class RolloutBatch:
    """The conversations of one step. drawn: the problem of each slot."""

    step: int
    drawn: list[int]
    talks: list[Talk]

    def groups(self) -> Iterator[tuple[int, int, list[RolloutAnswer]]]:
        """(slot, turn, answers): the answers to one prompt at one turn. Later turns may have fewer."""
        for slot in range(len(self.drawn)):
            talks = [talk for talk in self.talks if talk.slot == slot]
            for turn in range(max((len(talk.answers) for talk in talks), default=0)):
                yield slot, turn, [talk.answers[turn] for talk in talks if len(talk.answers) > turn]

    def state(self) -> dict[str, Any]:
        """For a checkpoint, before `finish`: what was sampled; the judge is asked again after a resume."""
        return {
            "step": self.step,
            "drawn": self.drawn,
            "talks": [[talk.slot, talk.context, [_plain(one) for one in talk.answers]] for talk in self.talks],
        }


class PhaseSeconds:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began

    def taken(self) -> dict[str, float]:
        """The seconds since the last call, and start anew."""
        found, self.seconds = self.seconds, {}
        return found


class Roller:
    """Runs conversations for a policy."""

    def __init__(
        self,
        policy: PolicyModel,
        problems: Sequence[TrainingProblem],
        environment: OutcomeScorer,
        form: PromptForm,
        settings: RLSettings,
        context: ExemplarSettings,
        watch: PhaseSeconds,
    ) -> None:
        self.policy, self.problems, self.environment = policy, problems, environment
        self.form, self.settings, self.context, self.watch = form, settings, context, watch

    def start(self, step: int, drawn: Sequence[int]) -> RolloutBatch:
        """Sample the first answers to these problems, and hand them to the judge."""
        self.environment.judge.prefetch([self.problems[index] for index in drawn])
        rng = random.Random(f"{self.settings.seed}/{step}/context")
        talks: list[Talk] = []
        prompts: list[list[int]] = []
        for slot, index in enumerate(drawn):
            problem = self.problems[index]
            context, prompt = self._opening(problem, rng)
            prompts.append(prompt)
            talks += [Talk(slot, problem, context) for _ in range(self.settings.samples)]
        batch = RolloutBatch(step, list(drawn), talks)
        self._sample(batch, 0, talks, prompts, self.settings.samples)
        return batch

    def finish(self, batch: RolloutBatch) -> None:
        """Wait for the judge, sample and judge the repairs, and score every group."""
        going = batch.talks
        for turn in range(1, self.settings.turns + 1):
            self._collect(going)
            if turn == self.settings.turns:
                break
            asked = [(talk, self._repair(talk)) for talk in going]
            going = [talk for talk, prompt in asked if prompt]
            if not going:
                break
            self._sample(batch, turn, going, [prompt for _, prompt in asked if prompt], 1)
        for _, _, answers in batch.groups():
            outcomes = [one.outcome for one in answers if one.outcome is not None]
            for answer, scored in zip(answers, self.environment.reward(outcomes), strict=True):
                answer.scored = scored

    def restore(self, state: dict[str, Any]) -> RolloutBatch:
        """A batch from a checkpoint, handed to the judge again."""
        talks = [
            Talk(slot, self.problems[state["drawn"][slot]], context, [_answer(one, self.form) for one in answers])
            for slot, context, answers in state["talks"]
        ]
        batch = RolloutBatch(state["step"], state["drawn"], talks)
        for talk in talks:
            talk.waiting = self.environment.submit(talk.problem, talk.answers[-1].text, talk.history)
        return batch

    @contextmanager
    def on_gpu(self, phase: str) -> Iterator[None]:
        """A phase of ours on the GPU that programs are timed on, where the judge shares it: never over a timing.

        The wait for the timing under way is a phase of its own, "wait_gpu".
        """
        sharing = getattr(self.environment.judge, "sharing", nullcontext)
        with ExitStack() as stack:
            with self.watch.phase("wait_gpu"):
                stack.enter_context(sharing(phase))
            with self.watch.phase(phase):
                yield

    # ---------------------------------------------------------------- one turn

    def _opening(self, problem: TrainingProblem, rng: random.Random) -> tuple[str, list[int]]:
        """The context and the first prompt; a context that does not fit is left out."""
        context = self.context.text(problem, rng)
        prompt = self.form.encode(problem, (), context)
        if context and len(prompt) > self.settings.max_prompt_tokens:
            context, prompt = "", self.form.encode(problem, (), "")
        if len(prompt) > self.settings.max_prompt_tokens:
            message = f"the prompt of {problem.name} has {len(prompt)} tokens, {self.settings.max_prompt_tokens} may be"
            raise BadInput(message, hint="raise max_prompt_tokens, or leave this problem out")
        return context, prompt

    def _repair(self, talk: Talk) -> list[int]:
        """The next turn's prompt; empty: the conversation is over."""
        outcome = talk.answers[-1].outcome
        if outcome is None or not outcome.scorable or (outcome.correct and self.settings.stop_when_right):
            return []
        prompt = self.form.encode(talk.problem, talk.history, talk.context)
        return prompt if len(prompt) <= self.settings.max_prompt_tokens else []

    def _sample(
        self, batch: RolloutBatch, turn: int, talks: Sequence[Talk], prompts: list[list[int]], samples: int
    ) -> None:
        settings = self.settings
        with self.on_gpu("generate"):
            groups = self.policy.generate(
                prompts,
                samples=samples,
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature,
                seed=int(content_key(f"{settings.seed}/{batch.step}/{turn}")[:15], 16),
            )
        flat = [(prompt, one) for prompt, group in zip(prompts, groups, strict=True) for one in group]
        with self.watch.phase("submit"):
            for talk, (prompt, sample) in zip(talks, flat, strict=True):
                text = self.form.decode(sample.tokens)
                talk.waiting = self.environment.submit(talk.problem, text, talk.history)
                talk.answers.append(RolloutAnswer(prompt, sample, text))

    def _collect(self, talks: Sequence[Talk]) -> None:
        with self.watch.phase("wait"):
            for talk in talks:
                if talk.waiting is not None:
                    talk.answers[-1].outcome = _result(talk.waiting)
                    talk.waiting = None


def _result(waiting: Future[AnswerOutcome]) -> AnswerOutcome:
    """A fault that the judge raises instead of telling it is unscorable: a bad rollout is data, not a crash."""
    try:
        return waiting.result()
    except HipwrightError as error:
        return AnswerOutcome(status="unscorable", fault=error.fault, stage=error.stage, message=error.message)


def _plain(answer: RolloutAnswer) -> list[Any]:
    return [answer.prompt, answer.sample.tokens, answer.sample.logprobs, answer.sample.ended]


def _answer(plain: Sequence[Any], form: PromptForm) -> RolloutAnswer:
    prompt, tokens, logprobs, ended = plain
    return RolloutAnswer(prompt, SampledAnswer(tokens, logprobs, ended), form.decode(tokens))
