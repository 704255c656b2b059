"""TRL's GRPOTrainer with the algorithm of train/rl: its rollouts, its draws and its advantages by turn.

TRL samples, computes log-probabilities and the loss, and shards; of its steps these are replaced: which problems come
next, what a completion is (a whole conversation), and the advantages, one for each token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.train.adapters.trl import COLUMN, LOGGED_ANSWERS, rates
from hipwright.train.forms import ChatForm
from hipwright.train.records import TrainingProblem
from hipwright.train.scaled.algorithm import JudgedConversation, SharedAlgorithm
from hipwright.train.scaled.rollout import ConversationRollout, ScaledConversation
from hipwright.train.scaled.settings import GrpoSettings
from hipwright.train.step_times import StepTimes

if TYPE_CHECKING:
    from hipwright.train.environment import Environment
    from hipwright.train.rl.training import Metrics

STATE = "algorithm.json"
"""The file of a checkpoint with the state of `SharedAlgorithm`."""


def algorithm_trainer(
    model: Any,
    tokenizer: Any,
    problems: Sequence[TrainingProblem],
    environment: Environment,
    settings: GrpoSettings,
    arguments: Any,
    log: Metrics | None,
    form: ChatForm | None = None,
    times: StepTimes | None = None,
) -> Any:
    """The trainer. arguments: a GRPOConfig; log: receives examples, None in all processes but the main one.

    times: of this process.

    form: of the prompts, None for the tokenizer's chat template. The trainer's `algorithm` is the shared state.
    """
    from accelerate.utils import gather_object

    from hipwright.train.adapters.trl import prompt_dataset

    rewarded = LastReward(log)
    trainer = _trainer_class()(
        model=model,
        reward_funcs=rewarded,
        args=arguments,
        train_dataset=prompt_dataset(problems, tokenizer),
        processing_class=tokenizer,
        peft_config=settings.lora.config(),
    )
    processes = int(trainer.args.world_size)
    prompts = processes * settings.batch * settings.accumulate // settings.samples
    trainer.algorithm = SharedAlgorithm(problems, settings, prompts)
    trainer.conversations = ConversationRollout(
        environment, form or ChatForm(tokenizer), settings, lambda own: any(gather_object([own])), times
    )
    trainer.rollout_func = _roll_out  # not an argument: TRL would warn that it is experimental
    rewarded.rollout = trainer.conversations
    return trainer


def _roll_out(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
    """TRL's rollout function: the conversations' tokens, with the findings masked."""

    def generate(asked: list[list[int]], samples: int) -> Any:
        return trainer._generate_single_turn(asked, None, {}, samples)

    trainer.conversations.run(generate)
    held = trainer.conversations.conversations
    return {
        "prompt_ids": [one.prompt for one in held],
        "completion_ids": [one.tokens for one in held],
        "logprobs": [one.logprobs for one in held] if trainer.use_vllm else None,
        "env_mask": [one.mask for one in held],
    }


def _trainer_class() -> Any:
    """The subclass of GRPOTrainer; made here, since the import of its base class takes seconds."""
    from accelerate.utils import gather_object
    from trl import GRPOTrainer

    class AlgorithmTrainer(GRPOTrainer):  # type: ignore[misc]
        """See the module's docstring."""

        algorithm: SharedAlgorithm
        conversations: ConversationRollout

        def _get_train_sampler(self, dataset: Any = None) -> Any:
            repeats = self.num_iterations * self.args.steps_per_generation
            return DrawSampler(self.algorithm, self.args.max_steps, self.num_generations, repeats)

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            asked = [self.algorithm.problems[self.algorithm.index[one[COLUMN]]] for one in inputs]
            self.conversations.begin(asked, self.algorithm.contexts(asked))
            held = self.conversations.conversations
            rows = [{**one, "prompt": talk.messages} for one, talk in zip(inputs, held, strict=True)]
            output: dict[str, Any] = super()._generate_and_score_completions(rows)
            judged = [_judged(self.algorithm, one) for one in held]
            everyone = gather_object([judged])
            weights, figures = self.algorithm.update(everyone, self.accelerator.process_index)
            output["advantages"] = token_advantages(held, weights, output["completion_ids"])
            for name, value in {**turn_figures(everyone), **figures}.items():
                self._metrics["train"][name].append(value)
            return output

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
                (folder / STATE).write_text(json.dumps(self.algorithm.state()), encoding="utf-8")

    return AlgorithmTrainer


class LastReward:
    """TRL's reward function: the reward of each conversation's last answer, which was judged in the rollout.

    It is what TRL logs; the advantages are by turn. log: receives examples.
    """

    __name__ = "hipwright"  # what TRL logs it under

    def __init__(self, log: Metrics | None) -> None:
        self.log = log
        self.rollout: ConversationRollout | None = None

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """A reward for each conversation, in order; None where its last answer is unscorable."""
        held = self.rollout.conversations if self.rollout else []
        last = [one.answers[-1] for one in held]
        if (metric := columns.get("log_metric")) is not None:
            for name, value in rates([answer.outcome for one in held for answer in one.answers]).items():
                metric(name, value)
        state = columns.get("trainer_state")
        if self.log is not None and state is not None:
            for one in held[:LOGGED_ANSWERS]:
                for record in _examples(one):
                    self.log.sample("rl", state.global_step + 1, record)
        return [one.scored.reward if one.scored else None for one in last]


class DrawSampler:
    """The rows of all batches of a run: each drawn problem `samples` times, each batch `repeats` times.

    The order is that of TRL's RepeatSampler, so that a group lies within one process. A batch is drawn one update
    before it is used, since the trainer reads ahead.
    """

    def __init__(self, algorithm: SharedAlgorithm, batches: int, samples: int, repeats: int) -> None:
        self.algorithm, self.batches, self.samples, self.repeats = algorithm, batches, samples, repeats

    def __iter__(self) -> Iterator[int]:
        for number in range(self.batches):
            drawn = self.algorithm.draw(number)
            for _ in range(self.repeats):
                for index in drawn:
                    yield from [index] * self.samples

    def __len__(self) -> int:
        return self.batches * self.repeats * self.algorithm.prompts * self.samples


def token_advantages(
    conversations: Sequence[ScaledConversation], weights: Sequence[Sequence[float]], completions: Any
) -> Any:
    """The advantage of each token, conversations x tokens as `completions`: each answer's own, and 0 elsewhere."""
    import torch

    found = torch.zeros(completions.shape, dtype=torch.float32, device=completions.device)
    for row, (one, own) in enumerate(zip(conversations, weights, strict=True)):
        for answer, weight in zip(one.answers, own, strict=True):
            found[row, answer.start : answer.stop] = weight
    return found


def turn_figures(everyone: Sequence[Sequence[JudgedConversation]]) -> dict[str, float]:
    """The share of correct answers among the scorable first and last ones, and the turns of a conversation."""
    held = [one for own in everyone for one in own]

    def share(which: int) -> float:
        known = [one.turns[which][1] for one in held if one.turns[which][1].reward is not None]
        return sum(one.outcome.correct for one in known) / max(len(known), 1)

    turns = sum(len(one.turns) for one in held) / max(len(held), 1)
    return {"correct_first": share(0), "correct_last": share(-1), "turns": turns}


def _judged(algorithm: SharedAlgorithm, one: ScaledConversation) -> JudgedConversation:
    turns = [(answer.text, answer.scored) for answer in one.answers if answer.scored is not None]
    return JudgedConversation(algorithm.index[one.problem.key], turns)


def _examples(one: ScaledConversation) -> Iterator[dict[str, Any]]:
    for turn, answer in enumerate(one.answers):
        yield {
            "problem": one.problem.name,
            "source": one.problem.source,
            "turn": turn,
            "completion": answer.text,
            "outcome": answer.outcome,
            "reward": answer.scored.reward if answer.scored else None,
        }
