"""The real models of the recipes on meta devices."""

from __future__ import annotations

import pytest

from hipwright.errors import BadInput
from hipwright.train import recipe
from hipwright.train.sharded import shard_figures

PARAMETERS = 14_770_033_664
"""Of Qwen2.5-Coder-14B, by its configuration."""


def test_fourteen_billion_over_eight_gpus() -> None:
    """Equal shards by FSDP and by ZeRO-3's rule, and 16 bytes a parameter: weights, gradient, two moments."""
    chosen = recipe.load("stanford-hip-14b")
    found = shard_figures(chosen, "sft")
    assert (found["parameters"], found["trained"]) == (PARAMETERS, PARAMETERS)
    assert found["parameters_a_gpu"] == PARAMETERS / 8
    assert found["state_gb_a_gpu"] == pytest.approx(16 * PARAMETERS / 8 / 1e9)
    assert found["largest_unit_gb"] == pytest.approx(2 * (2 * 152064 * 5120 + 5120) / 1e9), "embedding, norm and head"
    zero = shard_figures(recipe.load("qwen2.5-coder-14b-8gpu-deepspeed"), "rl")
    assert zero["parameters_a_gpu"] == found["parameters_a_gpu"] and "largest_unit_gb" not in zero


def test_adapters_are_what_is_trained() -> None:
    """Rank 32 on the seven linear layers of 28 blocks: 32 x (inputs + outputs) each."""
    sizes = [(3584, 3584), (3584, 512), (3584, 512), (3584, 3584), (3584, 18944), (3584, 18944), (18944, 3584)]
    adapters = 28 * sum(32 * (a + b) for a, b in sizes)
    for stage in ("sft", "dpo", "rl", "rft"):
        found = shard_figures(recipe.load("qwen2.5-coder-7b-lora-1gpu"), stage)
        assert found["trained"] == adapters
        assert found["parameters_a_gpu"] == found["parameters"]
        frozen = found["parameters"] - adapters
        assert found["state_gb_a_gpu"] == pytest.approx((2 * frozen + 16 * adapters) / 1e9)


def test_a_shape_that_is_not_known_or_wrong() -> None:
    name = "qwen2.5-coder-14b-8gpu"
    assert shard_figures(recipe.load(name), "sft", "/models/other") == {}, "another model than the recipe's"
    with pytest.raises(BadInput, match=r"model.shape is no qwen2"):
        shard_figures(recipe.load(name, ["model.shape.hidden_size=many"]), "sft")
