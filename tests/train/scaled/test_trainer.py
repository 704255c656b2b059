"""Turns, context, curriculum, clipping, rejection and mismatch in TRL's own trainer, with a two-layer model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hipwright.train.rewards import reward
from hipwright.train.scaled.trainer import STATE
from tests.train import fakes
from tests.train.rl.tools import MemoryLog
from tests.train.scaled.small import PROBLEMS, SMALL, ScriptedEnvironment, trainer

# peft and TRL call transformers by names that it is about to drop
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")]

FIRST = ["wrong", "fast", "broken", "wrong", "wrong", "slow"]
SECOND = ["fast", "wrong", "fast"]
THIRD = ["slow"]
"""Verdicts of two groups of three: the first group repairs its first conversation, the second two of its own; one of
these needs a third turn. "broken" is unscorable and ends its conversation."""
REWARD = {"wrong": 1.0, "slow": 2.0, "fast": 3.0}


def watched(made: Any, seen: list[dict[str, Any]]) -> Any:
    """The trainer, which notes the batches of its loss."""
    plain = made._compute_loss

    def noted(model: Any, inputs: dict[str, Any]) -> Any:
        seen.append({name: value.clone() for name, value in inputs.items() if hasattr(value, "clone")})
        return plain(model, inputs)

    made._compute_loss = noted
    return made


def own_spans(mask: list[float], values: list[float]) -> list[list[float]]:
    """The values of each run of ones in a mask."""
    spans: list[list[float]] = []
    before = 0.0
    for bit, value in zip(mask, values, strict=True):
        if bit and not before:
            spans.append([])
        if bit:
            spans[-1].append(value)
        before = bit
    return spans


def test_turns_have_advantages_of_their_own_and_findings_have_none(tmp_path: Path) -> None:
    environment, log, seen = ScriptedEnvironment([FIRST, SECOND, THIRD]), MemoryLog(), []
    settings = msgspec.structs.replace(SMALL, steps=1, turn_discount=0.5, lessons=2, exemplars=1.0)
    made = watched(trainer(environment, settings, tmp_path, log), seen)
    made.train()
    assert environment.given == [6, 3, 1], "an answer that is correct or unscorable ends its conversation"
    assert environment.histories[-1] == ["wrong_value", "wrong_value"]
    # returns: a turn's reward and half of the later gain for each turn between; leave-one-out within a turn
    first = [1 + 0.5 * 2, 3.0], [1 + 0.25 * 1, 1 + 0.5 * 2, 2.0]
    by_turn = [
        [first[0][0] - 3.0, 0.0],  # wrong, then fast: the unscorable one is in no baseline; no other second turn
        [3.0 - first[0][0]],
        [1.25 - (2.0 + 2.0) / 2, 1.5 - 3.0, 0.0],  # wrong, wrong, slow: of two second turns
        [2.0 - (1.25 + 2.0) / 2, 3.0 - 1.5],
        [2.0 - (1.25 + 2.0) / 2],
    ]
    (batch,) = seen
    masks = (batch["completion_mask"] * batch["tool_mask"]).tolist()
    found = []
    for mask, values in zip(masks, batch["advantages"].tolist(), strict=True):
        spans = own_spans(mask, values)
        assert all(len(set(span)) == 1 for span in spans), "one advantage an answer"
        assert not any(value for bit, value in zip(mask, values, strict=True) if not bit)
        found.append([span[0] for span in spans])
    assert sorted(one for one in found if any(one)) == [pytest.approx(one) for one in sorted(by_turn)]
    assert [0.0] in found, "the unscorable answer"
    state = made.algorithm.state()
    assert state["batches"] == 1 and len(state["clip"]["values"]) == 9, "nine scorable answers"
    assert sorted(made.algorithm.curriculum.state()["seen"]) == [0, 0, 2, 3]
    contexts = made.algorithm.contexts(PROBLEMS)
    assert all("## What went wrong in earlier programs" in one and "## Two earlier answers" in one for one in contexts)
    assert {one["turn"] for one in log.samples} == {0, 1} and all("outcome" in one for one in log.samples)
    figures = made.state.log_history[0]
    assert figures["correct_first"] == pytest.approx(2 / 5) and figures["correct_last"] == 1.0
    assert figures["turns"] == pytest.approx(10 / 6)


def test_a_resumed_run_draws_and_asks_what_a_whole_one_does(tmp_path: Path) -> None:
    """Curriculum, context and clip are part of the checkpoint; the draws repeat."""
    settings = msgspec.structs.replace(SMALL, turns=1, lessons=2)
    whole: list[dict[str, Any]] = []
    made = watched(trainer(ScriptedEnvironment([FIRST]), settings, tmp_path, None), whole)
    made.train()
    kept = json.loads((tmp_path / "checkpoint-1" / STATE).read_bytes())
    assert kept["batches"] == 1 and kept["draws"] == made.algorithm.draws
    environment, again = ScriptedEnvironment([FIRST]), []
    resumed = watched(trainer(environment, settings, tmp_path / "again", None), again)
    resumed.algorithm.load(kept)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert len(whole) == 2 and len(again) == 1
    for name in ("prompt_ids", "completion_ids", "advantages"):
        assert again[0][name].tolist() == whole[1][name].tolist(), name
    assert resumed.algorithm.state() == made.algorithm.state()


def test_rejection_imitates_the_best_correct_answer_of_a_group(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    script = ["slow", "fast", "wrong", "wrong", "broken", "wrong"]
    settings = msgspec.structs.replace(SMALL, steps=1, turns=1, update="rejection")
    made = watched(trainer(ScriptedEnvironment([script]), settings, tmp_path), seen)
    before = {name: one.detach().clone() for name, one in made.model.named_parameters()}
    made.train()
    values = sorted(max(row) for row in seen[0]["advantages"].tolist())
    assert values == [0.0] * 5 + [1.0], "one answer of the first group; the second has no correct one"
    assert any(not one.equal(before[name]) for name, one in made.model.named_parameters())


def test_shaping_reaches_the_advantages(tmp_path: Path) -> None:
    """A weight of 0.4 at an occupancy of 0.75: 0.3 for each correct answer, and nothing for a wrong one."""
    seen: list[dict[str, Any]] = []
    environment = ScriptedEnvironment([["fast", "wrong", "slow"]])
    environment.judge, environment.reward = fakes.ShapedJudge(), reward("source", shaping=0.4)
    made = watched(trainer(environment, msgspec.structs.replace(SMALL, steps=1, turns=1), tmp_path), seen)
    made.train()
    values = [2.0 + 0.3, 0.0, 0.8 + 0.3]
    expected = sorted(2 * [one - (sum(values) - one) / 2 for one in values])
    assert sorted(max(row, key=abs) for row in seen[0]["advantages"].tolist()) == pytest.approx(expected)


def test_a_far_token_of_a_bad_answer_has_no_gradient(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    made = watched(
        trainer(ScriptedEnvironment([FIRST]), msgspec.structs.replace(SMALL, steps=1, turns=1), tmp_path), seen
    )
    made.train()
    (batch,) = seen
    bad = batch["advantages"] < 0
    assert bad.any()

    def norm(behind: float) -> float:
        """The gradient's norm where the tokens of the bad answers had e^-behind of their probability at sampling."""
        with torch.no_grad():
            now, _, _ = made._get_per_token_logps_and_entropies(
                made.model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                batch["completion_ids"].size(1),
            )
        made.model.zero_grad()
        inputs = batch | {"old_per_token_logps": now - behind * bad.expand_as(now)}
        made._compute_loss(made.model, inputs).backward()
        return float(sum(one.grad.norm() for one in made.model.parameters() if one.grad is not None))

    assert norm(9.0) < 2 * norm(0.0)
    made.args.delta = None
    assert norm(9.0) > 50 * norm(0.0)


class StandInSampler:
    """vLLM's interface in TRL. Every token has the log-probability `said`."""

    def __init__(self, said: float) -> None:
        self.said, self.synced = said, 0

    def sync_weights(self) -> None:
        self.synced += 1

    def generate(self, prompts: Any, images: Any, num_generations: int, profiler: Any = None) -> Any:
        tokens = [[40 + place, 41, 42] for place in range(len(prompts))]
        return None, tokens, [[[self.said]] * 3 for _ in tokens], None


@pytest.mark.parametrize(("mode", "ratio"), [("token_truncate", 2.0), ("token_mask", 0.0), ("", None)])
def test_a_mismatch_with_the_sampler_is_corrected(tmp_path: Path, mode: Any, ratio: float | None) -> None:
    """The sampler gives its tokens e^-20: the trainer's probability is far more than twice that."""
    seen: list[dict[str, Any]] = []
    settings = msgspec.structs.replace(SMALL, steps=1, turns=1, mismatch=mode, mismatch_max=2.0)
    made = watched(trainer(ScriptedEnvironment([FIRST]), settings, tmp_path), seen)
    made.use_vllm, made.vllm_generation, made._last_loaded_step = True, StandInSampler(-20.0), -1
    made.train()
    assert made.vllm_generation.synced == 1
    if ratio is None:
        assert "importance_sampling_ratio" not in seen[0]
    else:
        assert set(seen[0]["importance_sampling_ratio"].flatten().tolist()) == {ratio}
