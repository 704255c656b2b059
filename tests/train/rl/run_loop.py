"""Small trainings that the kill tests run in processes of their own.

A training appends a line for each step: the step, a hash of the tokens of its batch, and the loss. A repeated step has
two lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from hipwright.records import content_key
from hipwright.train.rl import imitation, loop
from hipwright.train.rl.arms import Preference, train_dpo, train_rft
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.settings import CurriculumSettings, ImitationSettings, OptimSettings, RLSettings
from tests.train.rl.tools import END, ToyEnvironment, ToyForm, ToyJudge, tiny_model, toy_problems

FAST = OptimSettings(learning_rate=1e-3, warmup=3, schedule="cosine")
RL = RLSettings(
    steps=14,
    prompts=3,
    samples=8,
    turns=2,
    max_new_tokens=6,
    exemplars=0.5,
    lessons=1,
    checkpoint_every=3,
    sample_every=4,
    optim=FAST,
    curriculum=CurriculumSettings(decay=0.5),
)
IMITATION = ImitationSettings(
    steps=40, batch_tokens=60, micro_tokens=40, row_tokens=24, checkpoint_every=5, log_every=1, optim=FAST
)
KEPT = ("loss", "reward", "grad_norm", "entropy", "learning_rate")
_seen: list[Any] = []


class LineLog:
    """A log that appends a line for each step."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("a")

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        batch = content_key(json.dumps(_seen))
        _seen.clear()
        kept = {name: values[name] for name in KEPT if name in values}
        self.stream.write(json.dumps({"step": step, "batch": batch, **kept}) + "\n")
        self.stream.flush()

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        """Ignores examples."""


class RecordingPolicy(HFPolicy):
    """Records every sequence that is trained on."""

    def likelihood(self, pairs: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():
            _seen.append([[list(prompt), list(completion)] for prompt, completion in pairs])
        return super().likelihood(pairs, **options)


def rows() -> list[tuple[list[int], list[int]]]:
    return [([20 + i % 7, 3], [*range(8 + i % 5, 12 + i % 5 + i % 3), END]) for i in range(37)]


def main(kind: str, folder: Path) -> None:
    """Trains by "rl", "rft", "sft" or "dpo"; resumes from the folder's checkpoint."""
    torch.set_num_threads(1)
    policy = RecordingPolicy(tiny_model(), end=[END], device="cpu")
    log = LineLog(folder / "lines.jsonl")
    if kind in ("rl", "rft"):
        settings = RL if kind == "rl" else replace(RL, overlap=False)
        train = loop.train_rl if kind == "rl" else train_rft
        environment = ToyEnvironment(ToyJudge(slow=0.01))
        result = train(policy, toy_problems(), environment, ToyForm(), settings, folder, log)
    elif kind == "sft":
        result = imitation.sft_loop(policy, rows(), IMITATION, folder, log)
    else:
        pairs = [Preference(prompt=prompt, chosen=answer, rejected=answer[::-1]) for prompt, answer in rows()]
        result = train_dpo(policy, pairs, IMITATION, folder, log)
    (folder / "done.json").write_text(json.dumps({"step": result.step}))
