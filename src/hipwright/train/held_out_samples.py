"""Answers to held-out problems while a model is fine-tuned, scored by the environment."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hipwright.train.adapters.trl import rates
from hipwright.train.environment import Environment
from hipwright.train.forms import ChatForm
from hipwright.train.records import TrainingProblem

PROBLEMS = 8
"""The first so many held-out problems are sampled."""
NEW_TOKENS = 3072
LOGGED_SAMPLES = 2


class HeldOutSampler:
    """A StepCallback (sft.py) that samples one greedy answer for each problem every `every` updates.

    It restores the random states. environment, log: None in all processes but the main one, which scores; every
    process generates, since the weights may be sharded. new_tokens: the most tokens of an answer.
    """

    def __init__(
        self,
        problems: Sequence[TrainingProblem],
        environment: Environment | None,
        tokenizer: Any,
        log: Any,
        *,
        every: int,
        new_tokens: int = NEW_TOKENS,
    ) -> None:
        self._problems = list(problems)[:PROBLEMS]
        self._environment, self._log = environment, log
        self._tokenizer, self._form = tokenizer, ChatForm(tokenizer)
        self._every, self._new_tokens = every, new_tokens

    def __call__(self, trainer: Any, step: int) -> None:
        """Samples and scores at every `every`th step."""
        if step % self._every:
            return
        texts = self._answers(trainer)
        if self._environment is None or self._log is None:
            return
        with ThreadPoolExecutor(len(texts)) as pool:
            scored = list(pool.map(self._environment.score, self._problems, texts))
        known = [one.reward for one in scored if one.reward is not None]
        figures = rates([one.outcome for one in scored])
        self._log.metrics("eval", step, {**figures, "reward": sum(known) / max(len(known), 1)})
        for problem, text, one in list(zip(self._problems, texts, scored, strict=True))[:LOGGED_SAMPLES]:
            record = {"problem": problem.name, "completion": text, "outcome": one.outcome, "reward": one.reward}
            self._log.sample("eval", step, record)

    def _answers(self, trainer: Any) -> list[str]:
        import torch
        from trl.models.utils import unwrap_model_for_generation

        devices = [trainer.accelerator.device.index or 0] if torch.cuda.is_available() else []
        with (
            torch.random.fork_rng(devices=devices),
            torch.no_grad(),
            unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model,
        ):
            training = model.training
            model.eval()
            texts = [self._answer(model, problem, trainer.accelerator.device) for problem in self._problems]
            model.train(training)
        return texts

    def _answer(self, model: Any, problem: TrainingProblem, device: Any) -> str:
        """The text of one greedy answer. Problems are not batched, since training leaves little memory."""
        import torch

        prompt = self._form.encode(problem)
        ids = torch.tensor([prompt], device=device)
        made = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=self._new_tokens,
            eos_token_id=self._tokenizer.eos_token_id,
            pad_token_id=self._tokenizer.pad_token_id,
        )
        return self._form.decode(made[0, len(prompt) :].tolist())
