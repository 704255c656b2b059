"""Conversations with the environment: batches of answers are sampled while earlier answers are judged (docs/rl.md).

A batch is several prompts with several conversations each. `start` samples the first answers and submits them to the
judge; `finish` waits for the outcomes, and samples and judges repairs. Between the two calls the loop trains on the
previous batch and starts the next one.
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
from hipwright.train.rl.exemplars import RolloutContext
from hipwright.train.rl.policy import PolicyModel, SampledAnswer
from hipwright.train.rl.settings import RLSettings


class OutcomeScorer(Protocol):
    """The part of `hipwright.train.environment.Environment` that the loops use."""

    judge: Any
    reward: Callable[[Sequence[AnswerOutcome]], list[ScoredOutcome]]

    def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Future[AnswerOutcome]:
        """The future outcome."""
        ...


@dataclass
class RolloutAnswer:
    """One answer of a conversation. outcome, scored: None until it is judged, and until its group is."""

    prompt: list[int]
    sample: SampledAnswer
    text: str
    outcome: AnswerOutcome | None = None
    scored: ScoredOutcome | None = None


@dataclass
class Conversation:
    """One conversation. slot: the index of its prompt in the batch; waiting: the future outcome of its last answer."""

    slot: int
    problem: TrainingProblem
    context: str
    answers: list[RolloutAnswer] = field(default_factory=list)
    waiting: Future[AnswerOutcome] | None = None

    @property
    def history(self) -> list[Turn]:
        """The judged turns."""
        return [Turn(completion=one.text, outcome=one.outcome) for one in self.answers if one.outcome is not None]


@dataclass
class RolloutBatch:
    """The conversations of one step. drawn: the index of each slot's problem."""

    step: int
    drawn: list[int]
    conversations: list[Conversation]

    def groups(self) -> Iterator[tuple[int, int, list[RolloutAnswer]]]:
        """(slot, turn, answers to one prompt at one turn). Later turns may have fewer answers."""
        for slot in range(len(self.drawn)):
            conversations = [conversation for conversation in self.conversations if conversation.slot == slot]
            for turn in range(max((len(conversation.answers) for conversation in conversations), default=0)):
                yield (
                    slot,
                    turn,
                    [conversation.answers[turn] for conversation in conversations if len(conversation.answers) > turn],
                )

    def state(self) -> dict[str, Any]:
        """The sampled answers, for a checkpoint before `finish`; they are submitted again after a resume."""
        return {
            "step": self.step,
            "drawn": self.drawn,
            "talks": [
                [conversation.slot, conversation.context, [_plain(one) for one in conversation.answers]]
                for conversation in self.conversations
            ],
        }


class PhaseSeconds:
    """Measures seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the block's time to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began

    def take(self) -> dict[str, float]:
        """The seconds by phase since the last call; resets them."""
        found, self.seconds = self.seconds, {}
        return found


class RolloutRunner:
    """Samples and judges the conversations of a policy. times: measures the phases."""

    def __init__(
        self,
        policy: PolicyModel,
        problems: Sequence[TrainingProblem],
        environment: OutcomeScorer,
        form: PromptForm,
        settings: RLSettings,
        context: RolloutContext,
        times: PhaseSeconds,
    ) -> None:
        self.policy, self.problems, self.environment = policy, problems, environment
        self.form, self.settings, self.context, self.times = form, settings, context, times

    def start(self, step: int, drawn: Sequence[int]) -> RolloutBatch:
        """Samples the first answers to these problems and submits them to the judge."""
        self.environment.judge.prefetch([self.problems[index] for index in drawn])
        rng = random.Random(f"{self.settings.seed}/{step}/context")
        conversations: list[Conversation] = []
        prompts: list[list[int]] = []
        for slot, index in enumerate(drawn):
            problem = self.problems[index]
            context, prompt = self._opening(problem, rng)
            prompts.append(prompt)
            conversations += [Conversation(slot, problem, context) for _ in range(self.settings.samples)]
        batch = RolloutBatch(step, list(drawn), conversations)
        self._sample(batch, 0, conversations, prompts, self.settings.samples)
        return batch

    def finish(self, batch: RolloutBatch) -> None:
        """Waits for the outcomes, samples and judges repairs, and scores every group."""
        open_conversations = batch.conversations
        for turn in range(1, self.settings.turns + 1):
            self._collect(open_conversations)
            if turn == self.settings.turns:
                break
            prompted = [(conversation, self._repair(conversation)) for conversation in open_conversations]
            open_conversations = [conversation for conversation, prompt in prompted if prompt]
            if not open_conversations:
                break
            self._sample(batch, turn, open_conversations, [prompt for _, prompt in prompted if prompt], 1)
        for _, _, answers in batch.groups():
            outcomes = [one.outcome for one in answers if one.outcome is not None]
            for answer, scored in zip(answers, self.environment.reward(outcomes), strict=True):
                answer.scored = scored

    def restore(self, state: dict[str, Any]) -> RolloutBatch:
        """A batch from a checkpoint, submitted to the judge again."""
        conversations = [
            Conversation(
                slot, self.problems[state["drawn"][slot]], context, [_answer(one, self.form) for one in answers]
            )
            for slot, context, answers in state["talks"]
        ]
        batch = RolloutBatch(state["step"], state["drawn"], conversations)
        for conversation in conversations:
            conversation.waiting = self.environment.submit(
                conversation.problem, conversation.answers[-1].text, conversation.history
            )
        return batch

    @contextmanager
    def on_gpu(self, phase: str) -> Iterator[None]:
        """A phase of GPU work during which the judge times nothing; for judges without `timing_paused` just a phase.

        The wait for the timing in progress is the phase "wait_gpu".
        """
        pause = getattr(self.environment.judge, "timing_paused", nullcontext)
        with ExitStack() as stack:
            with self.times.phase("wait_gpu"):
                stack.enter_context(pause(phase))
            with self.times.phase(phase):
                yield

    # ---------------------------------------------------------------- one turn

    def _opening(self, problem: TrainingProblem, rng: random.Random) -> tuple[str, list[int]]:
        """(the context, the first prompt's tokens); a context that is too long is left out. Raises BadInput."""
        context = self.context.text(problem, rng)
        prompt = self.form.encode(problem, (), context)
        if context and len(prompt) > self.settings.max_prompt_tokens:
            context, prompt = "", self.form.encode(problem, (), "")
        if len(prompt) > self.settings.max_prompt_tokens:
            message = f"the prompt of {problem.name} has {len(prompt)} tokens, {self.settings.max_prompt_tokens} may be"
            raise BadInput(message, hint="raise max_prompt_tokens, or leave this problem out")
        return context, prompt

    def _repair(self, conversation: Conversation) -> list[int]:
        """The next turn's prompt; empty where the conversation is over."""
        outcome = conversation.answers[-1].outcome
        if outcome is None or not outcome.scorable or (outcome.correct and self.settings.stop_when_right):
            return []
        prompt = self.form.encode(conversation.problem, conversation.history, conversation.context)
        return prompt if len(prompt) <= self.settings.max_prompt_tokens else []

    def _sample(
        self,
        batch: RolloutBatch,
        turn: int,
        conversations: Sequence[Conversation],
        prompts: list[list[int]],
        samples: int,
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
        with self.times.phase("submit"):
            for conversation, (prompt, sample) in zip(conversations, flat, strict=True):
                text = self.form.decode(sample.tokens)
                conversation.waiting = self.environment.submit(conversation.problem, text, conversation.history)
                conversation.answers.append(RolloutAnswer(prompt, sample, text))

    def _collect(self, conversations: Sequence[Conversation]) -> None:
        with self.times.phase("wait"):
            for conversation in conversations:
                if conversation.waiting is not None:
                    conversation.answers[-1].outcome = _result(conversation.waiting)
                    conversation.waiting = None


def _result(waiting: Future[AnswerOutcome]) -> AnswerOutcome:
    """The outcome; unscorable where the judge raised, so that a failed rollout does not end the run."""
    try:
        return waiting.result()
    except HipwrightError as error:
        return AnswerOutcome(status="unscorable", fault=error.fault, stage=error.stage, message=error.message)


def _plain(answer: RolloutAnswer) -> list[Any]:
    return [answer.prompt, answer.sample.tokens, answer.sample.logprobs, answer.sample.ended]


def _answer(plain: Sequence[Any], form: PromptForm) -> RolloutAnswer:
    prompt, tokens, logprobs, ended = plain
    return RolloutAnswer(prompt, SampledAnswer(tokens, logprobs, ended), form.decode(tokens))
