"""Run where verl 0.9.1 is installed: our overrides in its configuration, our function in its reward manager.

argv: a file with the overrides as JSON. JSON on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1.agent_loop_tq import _settle_session_tasks
from verl.workers.rollout.replica import TokenOutput

from hipwright.train import tiny
from hipwright.train.judging import settings
from tests.train import fakes

settings.new_environment = lambda asked, gpus=(): fakes.environment(asked.reward.name)
WORDS = ["fast", "wrong", "broken", "slow"]
CONVERSATIONS = ["wrong fast", "wrong wrong fast", "fast", "wrong broken", "broken"]


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


class Words:
    """A server that answers with the next word's program."""

    def __init__(self, words: list[str], tokenizer: Any) -> None:
        self.words, self.tokenizer, self.asked = words, tokenizer, []

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.asked.append((self.tokenizer.decode(prompt_ids), sampling_params))
        text = fakes.answer(self.words[len(self.asked) - 1])
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


def conversation(config: Any, words: list[str]) -> dict[str, Any]:
    """What verl's trainer is given for a conversation with these answers, by the agent loop of the configuration."""
    tokenizer = tiny.train_tokenizer([fakes.SOURCE])
    server = Words(words, tokenizer)
    (agent,) = OmegaConf.load(config.actor_rollout_ref.rollout.agent.agent_loop_config_path)
    loop = hydra.utils.instantiate(
        agent,
        trainer_config=DictConfigWrap(config=config),
        server_manager=server,
        tokenizer=tokenizer,
        processor=None,
        hf_model_type=None,
        dataset_cls=object,
        data_config=DictConfigWrap(config.data),
    )
    row = {
        "raw_prompt": [{"role": "user", "content": "write it"}],
        "reward_model": {"ground_truth": fakes.SOURCE},
        "extra_info": {"task_name": "row_sum"},
    }
    try:
        made = asyncio.run(loop.run({"temperature": 1.0}, **row)).as_dict()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    mask = made["response_mask"].tolist()
    own = "".join(str(bit) for bit, before in zip(mask, [None, *mask], strict=False) if bit != before)
    masked = [one for one, bit in zip(made["responses"].tolist(), mask, strict=True) if not bit]
    rewards = made["rm_scores"].tolist()
    return {
        "spans": own,
        "findings": tokenizer.decode(masked),
        "reward": rewards[-1],
        "before": sum(rewards[:-1]),
        "second_prompt": server.asked[-1][0],
        "first_prompt": server.asked[0][0],
        "max_tokens": server.asked[0][1]["max_tokens"],
    }


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
    "worst": config.actor_rollout_ref.actor.clip_ratio_c,
    "correction": [
        config.algorithm.rollout_correction.rollout_is,
        config.algorithm.rollout_correction.rollout_is_threshold,
    ],
    "conversations": {words: conversation(config, words.split()) for words in CONVERSATIONS},
    "resume": config.trainer.resume_mode,
}
print(json.dumps(told))
