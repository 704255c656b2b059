"""Run where verl 0.9.1 is installed: our overrides in its configuration, our function in its reward manager.

argv: a file with the overrides as JSON. JSON on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from verl import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1.agent_loop_tq import _settle_session_tasks

from hipwright.train.judging import settings
from tests.train import fakes

settings.new_environment = lambda asked, gpus=(): fakes.environment(asked.reward.name)
WORDS = ["fast", "wrong", "broken", "slow"]


class Characters:
    """A tokenizer of characters."""

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        return "".join(chr(int(one)) for one in ids)


def sample(word: str) -> DataProto:
    ids = torch.tensor([[ord(one) for one in fakes.answer(word)]])
    prompt = torch.ones((1, 3), dtype=torch.long)
    row = {
        "data_source": "hipwright",
        "reward_model": {"style": "rule", "ground_truth": fakes.SOURCE},
        "extra_info": {"task_name": "row_sum", "split": "train", "index": 0},
    }
    tensors = {
        "prompts": prompt,
        "responses": ids,
        "attention_mask": torch.ones((1, 3 + ids.shape[1]), dtype=torch.long),
    }
    return DataProto.from_dict(tensors, {name: np.array([value], dtype=object) for name, value in row.items()})


async def rewards(config: Any) -> tuple[dict[str, float], list[str]]:
    """(verl's reward of each answer by word, the errors that verl collected)."""
    manager = load_reward_manager(config, Characters())
    tasks = {word: asyncio.create_task(manager.run_single(sample(word))) for word in WORDS}
    errors = await _settle_session_tasks(list(tasks.values()))
    good = {word: task.result()["reward_score"] for word, task in tasks.items() if task.exception() is None}
    return good, [f"{type(error).__name__}: {error}" for error in errors]


with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
    config = compose("ppo_trainer", overrides=json.loads(Path(sys.argv[1]).read_text()))
scores, errors = asyncio.run(rewards(config))
left = list(scores)
print("; ".join(errors), file=sys.stderr)
advantage, _ = get_adv_estimator_fn(config.algorithm.adv_estimator)(
    torch.tensor([[scores[word]] for word in left]),
    torch.ones((len(left), 1)),
    np.array(["one prompt"] * len(left)),
    config=config.algorithm,
)
told = {
    "version": verl.__version__,
    "scores": scores,
    "errors": errors,
    "advantages": dict(zip(left, advantage[:, 0].tolist(), strict=True)),
    "model": config.actor_rollout_ref.model.path,
    "samples": config.actor_rollout_ref.rollout.n,
    "machines": config.trainer.nnodes,
    "files": config.data.train_files,
    "refill": config.trainer.v1.sampler.sync_refill_failed_groups,
    "logger": list(config.trainer.logger),
    "correction": [
        config.algorithm.rollout_correction.rollout_is,
        config.algorithm.rollout_correction.rollout_is_threshold,
    ],
    "resume": config.trainer.resume_mode,
}
print(json.dumps(told))
