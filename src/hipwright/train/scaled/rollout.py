"""Conversations in TRL's trainer: answers, verdicts and repairs as one sequence of tokens each.

A conversation's sequence is the prompt, the first answer, the verifier's findings, the second answer and so on. The
findings are masked out of the loss. Every process generates equally often, since the weights may be sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from hipwright.errors import BadInput, HipwrightError
from hipwright.train.environment import Environment
from hipwright.train.forms import ChatForm, repair_message
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem, Turn
from hipwright.train.scaled.settings import GrpoSettings
from hipwright.train.step_times import StepTimes

Generate = Callable[[list[list[int]], int], tuple[list[list[int]], list[list[float]] | None]]
"""(prompts' tokens, answers for each) -> (answers' tokens, their log-probabilities where the sampler has them)."""


@dataclass
class ScaledAnswer:
    """One answer. start, stop: its place in the conversation's tokens after the prompt."""

    text: str
    start: int
    stop: int
    ended: bool
    outcome: AnswerOutcome
    scored: ScoredOutcome | None = None


@dataclass
class ScaledConversation:
    """A conversation. messages: its prompt; tokens, mask, logprobs: after the prompt; mask 1 for the policy's own."""

    problem: TrainingProblem
    messages: list[dict[str, str]]
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    answers: list[ScaledAnswer] = field(default_factory=list)

    @property
    def history(self) -> list[Turn]:
        """The judged turns."""
        return [Turn(completion=one.text, outcome=one.outcome) for one in self.answers]

    def add(self, tokens: Sequence[int], logprobs: Sequence[float] | None, own: int) -> None:
        """Appends tokens; own: 1 for the policy's, 0 for the verifier's."""
        self.tokens += tokens
        self.mask += [own] * len(tokens)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(tokens)


class ConversationRollout:
    """Samples and judges the conversations of a batch. agree: whether a statement is true in any process; times:
    receives the seconds of "generate" and "wait" (for verdicts)."""

    def __init__(
        self,
        environment: Environment,
        form: ChatForm,
        settings: GrpoSettings,
        agree: Callable[[bool], bool],
        times: StepTimes | None = None,
    ) -> None:
        self.environment, self.form, self.settings, self._any = environment, form, settings, agree
        self._span = times.span if times is not None else lambda name: nullcontext()
        self.conversations: list[ScaledConversation] = []

    def begin(self, problems: Sequence[TrainingProblem], contexts: Sequence[str]) -> None:
        """Opens a conversation for each row; a context with which a prompt is too long is left out."""
        self.environment.judge.prefetch(list({one.key: one for one in problems}.values()))
        self.conversations = []
        for problem, context in zip(problems, contexts, strict=True):
            tokens = self.form.encode(problem, (), context)
            if context and len(tokens) > self.settings.max_prompt_tokens:
                context, tokens = "", self.form.encode(problem)
            if len(tokens) > self.settings.max_prompt_tokens:
                raise BadInput(
                    f"the prompt of {problem.name} has {len(tokens)} tokens, {self.settings.max_prompt_tokens} may be",
                    hint="--set grpo.max_prompt_tokens=..., or leave this problem out",
                )
            messages = self.form.messages(problem, (), context)
            self.conversations.append(ScaledConversation(problem, messages, tokens))

    def run(self, generate: Generate) -> None:
        """Samples and judges every turn, then scores each group's answers of one turn together."""
        still_open = self.conversations
        for turn in range(self.settings.turns):
            if turn:
                still_open = [one for one in still_open if self._add_findings(one)]
            if not self._any(bool(still_open)):
                break
            asked = still_open or self.conversations[:1]  # generation is collective: an answer that is thrown away
            samples = 1 if turn else self.settings.samples
            with self._span("generate"):
                tokens, logprobs = generate([one.prompt + one.tokens for one in asked], samples)
            if still_open:
                with self._span("wait"):
                    self._judge(still_open, tokens, logprobs)
        self._score()

    def groups(self) -> list[list[ScaledConversation]]:
        """The conversations of each prompt, which are consecutive."""
        many = self.settings.samples
        return [self.conversations[at : at + many] for at in range(0, len(self.conversations), many)]

    def _judge(
        self,
        conversations: Sequence[ScaledConversation],
        tokens: Sequence[Sequence[int]],
        logprobs: Sequence[Sequence[float]] | None,
    ) -> None:
        """Appends each conversation's answer with its outcome; all are submitted first."""
        texts = [self.form.decode(one) for one in tokens]
        waiting = [
            self.environment.submit(one.problem, text, one.history)
            for one, text in zip(conversations, texts, strict=True)
        ]
        for place, (one, text) in enumerate(zip(conversations, texts, strict=True)):
            start = len(one.tokens)
            one.add(tokens[place], logprobs[place] if logprobs is not None else None, 1)
            ended = bool(tokens[place]) and tokens[place][-1] == self.form.tokenizer.eos_token_id
            try:
                found = waiting[place].result()
            except HipwrightError as error:  # a failed rollout does not end the run
                found = AnswerOutcome(status="unscorable", fault=error.fault, stage=error.stage, message=error.message)
            one.answers.append(ScaledAnswer(text, start, len(one.tokens), ended, found))

    def _add_findings(self, conversation: ScaledConversation) -> bool:
        """Appends the verifier's findings of the last answer; False where the conversation is over."""
        last = conversation.answers[-1]
        if not last.outcome.scorable or (last.outcome.correct and self.settings.stop_when_right):
            return False
        said = [*conversation.messages]
        for turn in conversation.history[:-1]:
            said += [{"role": "assistant", "content": turn.completion}, repair_message(turn.outcome)]
        tokens = findings_tokens(self.form.tokenizer, said, last.text, repair_message(last.outcome), ended=last.ended)
        if len(conversation.prompt) + len(conversation.tokens) + len(tokens) > self.settings.max_prompt_tokens:
            return False
        conversation.add(tokens, None, 0)
        return True

    def _score(self) -> None:
        """Scores the answers of one prompt and turn as one group."""
        for group in self.groups():
            for turn in range(max(len(one.answers) for one in group)):
                answers = [one.answers[turn] for one in group if len(one.answers) > turn]
                scored = self.environment.reward([one.outcome for one in answers])
                for answer, found in zip(answers, scored, strict=True):
                    answer.scored = found


def findings_tokens(
    tokenizer: Any, messages: Sequence[dict[str, str]], answer: str, findings: dict[str, str], *, ended: bool
) -> list[int]:
    """The tokens between an answer and the next one: the rest of the answer's message, the findings, and the opening
    of the next answer. ended: the answer has its end token.

    Raises BadInput for a chat template that changes earlier messages once there are later ones.
    """
    said = [*messages, {"role": "assistant", "content": answer}]
    before = str(tokenizer.apply_chat_template(said, tokenize=False))
    after = str(tokenizer.apply_chat_template([*said, findings], tokenize=False, add_generation_prompt=True))
    end = tokenizer.eos_token
    if not after.startswith(before) or end not in before:
        raise BadInput(
            "the chat template changes earlier messages once there are later ones, or does not end an answer with "
            f"{end}",
            hint="--set grpo.turns=1, or take another template",
        )
    rest = before[before.rindex(end) + (len(end) if ended else 0) :]
    return list(tokenizer.encode(rest + after[len(before) :], add_special_tokens=False))
