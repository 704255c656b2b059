"""Supervised learning on rows of tokens on one GPU: packed, with an exact resume, and a loss on completions alone.

The miniature and the arms use it. TRL's SFTTrainer (train/sft.py) trains larger models on several GPUs.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.errors import BadInput
from hipwright.train.rl.checkpoint import digest
from hipwright.train.rl.packing import Pair
from hipwright.train.rl.policy import PolicyModel
from hipwright.train.rl.settings import ImitationSettings
from hipwright.train.rl.training import LoopResult, Metrics, TrainingRun

if TYPE_CHECKING:
    from torch import Tensor

Evaluate = Callable[[], Mapping[str, float]]
"""Gives figures of the present policy for the log."""
Gradient = Callable[[Sequence[int]], Mapping[str, "Tensor"]]
"""Accumulates the loss's gradient over a batch of indices; returns figures, which stay on the device."""


def sft_loop(
    policy: PolicyModel,
    rows: Sequence[Pair],
    settings: ImitationSettings,
    folder: Path,
    log: Metrics,
    *,
    evaluate: Evaluate | None = None,
    piece_minutes: float | None = None,
    allow_device_change: bool = False,
) -> LoopResult:
    """Minimises the mean negative log-likelihood of the completions' tokens. Resumes from FOLDER's checkpoint.

    rows: (prompt tokens, completion tokens), the completion with its end token. evaluate: called every
    `evaluate_every` steps and after the last; logged at stage "eval".
    """

    def gradient(batch: Sequence[int]) -> Mapping[str, Tensor]:
        return {"loss": imitate(policy, [rows[index] for index in batch], settings)}

    sizes = [len(prompt) + len(completion) for prompt, completion in rows]
    identity = {"data": digest(array("i", tokens).tobytes() for row in rows for tokens in row), "update": "sft"}
    passes = Passes(policy, sizes, settings, folder, log, identity, piece_minutes)
    return passes.run("sft", gradient, evaluate, allow_device_change=allow_device_change)


def imitate(policy: PolicyModel, rows: Sequence[Pair], settings: ImitationSettings) -> Tensor:
    """Accumulates the gradient of the rows' mean loss; returns that loss, in nats a completion token."""
    import torch

    tokens = sum(len(completion) for _, completion in rows)
    losses = []
    for part in policy.likelihood(rows, micro_tokens=settings.micro_tokens, row_tokens=settings.row_tokens):
        loss = -part.logprobs.sum() / tokens
        torch.autograd.backward(loss)
        losses.append(loss.detach())
    return torch.stack(losses).sum()


class Passes:
    """Optimizer steps over fixed data in passes, each in its own random order.

    sizes: tokens of each row. A batch is the next rows of the pass with at most `batch_tokens` tokens. The position in
    the data is part of the checkpoint.
    """

    def __init__(
        self,
        policy: PolicyModel,
        sizes: Sequence[int],
        settings: ImitationSettings,
        folder: Path,
        log: Metrics,
        identity: Mapping[str, Any],
        piece_minutes: float | None = None,
    ) -> None:
        if not sizes:
            raise BadInput("nothing to learn from: no rows")
        self.sizes, self.settings, self.log = sizes, settings, log
        self.number, self.place = 0, 0
        self._order: tuple[int, list[int]] = (-1, [])
        total = settings.steps or self._steps()
        self.training = TrainingRun(policy, settings, total, folder, identity, {"passes": self}, piece_minutes)

    def run(
        self, stage: str, gradient: Gradient, evaluate: Evaluate | None = None, *, allow_device_change: bool = False
    ) -> LoopResult:
        """Trains until the piece or the run is over."""
        training = self.training
        training.resume(allow_device_change=allow_device_change)
        metrics: dict[str, float] = {}
        tokens, began = 0, time.monotonic()
        while not training.over:
            batch = self.next_batch()
            rate = training.optim.rate(training.step)
            found = gradient(batch)
            norm = training.apply()
            tokens += sum(self.sizes[index] for index in batch)
            if training.step % self.settings.log_every == 0 or training.over:
                metrics = {name: float(value) for name, value in found.items()}
                spent = time.monotonic() - began
                metrics |= {"grad_norm": float(norm), "learning_rate": rate, "pass": self.number + 1.0}
                metrics |= {"tokens_per_second": tokens / max(spent, 1e-9), "minutes": training.minutes}
                self.log.metrics(stage, training.step, metrics)
                tokens, began = 0, time.monotonic()
            if evaluate and (training.step % self.settings.evaluate_every == 0 or training.finished):
                self.log.metrics("eval", training.step, evaluate())
            if training.checkpoint_due():
                training.save()
        return training.result(metrics)

    def next_batch(self) -> list[int]:
        """The indices of the next batch; advances the position."""
        order = self._pass(self.number)
        batch = take_batch(order[self.place :], self.sizes, self.settings.batch_tokens)
        self.place += len(batch)
        if self.place >= len(order):
            self.number, self.place = self.number + 1, 0
        return batch

    def state(self) -> dict[str, Any]:
        """The position in the data, for a checkpoint."""
        return {"number": self.number, "place": self.place}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.number, self.place = state["number"], state["place"]

    def _pass(self, number: int) -> list[int]:
        if self._order[0] != number:
            order = list(range(len(self.sizes)))
            random.Random(f"{self.settings.seed}/{number}/pass").shuffle(order)
            self._order = (number, order)
        return self._order[1]

    def _steps(self) -> int:
        """The steps of `epochs` passes, extrapolated from the first pass."""
        return max(1, round(self.settings.epochs * sum(1 for _ in self._batches(self._pass(0)))))

    def _batches(self, order: list[int]) -> Iterator[list[int]]:
        place = 0
        while place < len(order):
            batch = take_batch(order[place:], self.sizes, self.settings.batch_tokens)
            place += len(batch)
            yield batch


def take_batch(order: Sequence[int], sizes: Sequence[int], tokens: int) -> list[int]:
    """The first indices with at most `tokens` tokens in total, at least one index."""
    batch: list[int] = []
    for index in order:
        tokens -= sizes[index]
        if tokens < 0 and batch:
            break
        batch.append(index)
    return batch
