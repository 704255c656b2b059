"""VLLMPolicy with a stand-in for vLLM: its weights and its answers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hipwright.errors import BadInput
from hipwright.train.rl.policy import HFPolicy, with_lora
from hipwright.train.rl.vllm_policy import VLLMPolicy, merged_weights
from tests.train.rl.tools import END, tiny_model


class Engine:
    """The part of vllm.LLM that the policy uses; `network` is the argument of apply_model's function."""

    def __init__(self, **options: Any) -> None:
        self.options, self.network, self.asked = options, SimpleNamespace(load_weights=self._load), []
        self.weights: dict[str, torch.Tensor] = {}

    def _load(self, weights: Any) -> set[str]:
        self.weights = {name: value.clone() for name, value in weights}
        return set(self.weights)

    def apply_model(self, work: Any) -> list[Any]:
        return [work(self.network)]

    def generate(self, prompts: Any, options: Any, use_tqdm: bool) -> list[Any]:
        self.asked.append((prompts, options))
        outputs = [
            SimpleNamespace(
                token_ids=(7, last),
                logprobs=[{7: SimpleNamespace(logprob=-0.5)}, {last: SimpleNamespace(logprob=-1.5)}],
            )
            for last in (END, 9)
        ]
        return [SimpleNamespace(outputs=outputs) for _ in prompts]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("vllm")
    fake.LLM, fake.SamplingParams = Engine, SimpleNamespace  # type: ignore[attr-defined]
    fake.__spec__ = importlib.util.spec_from_loader("vllm", None)
    monkeypatch.setitem(sys.modules, "vllm", fake)
    whole = HFPolicy.__init__
    monkeypatch.setattr(
        HFPolicy, "__init__", lambda self, model, **more: whole(self, model, **{**more, "device": "cpu"})
    )
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")


def test_without_vllm_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.train.rl.vllm_policy.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="not installed"):
        VLLMPolicy(None, "model", end=[END])


@pytest.mark.usefixtures("vllm")
def test_answers_use_the_present_weights(tmp_path: Path) -> None:
    policy = VLLMPolicy(tiny_model(), tmp_path, end=[END])
    groups = policy.generate([[5], [6, 7]], samples=2, max_new_tokens=4, temperature=0.7, seed=3)
    assert [[one.ended for one in group] for group in groups] == [[True, False]] * 2
    assert groups[0][0].tokens == [7, END] and groups[0][0].logprobs == [-0.5, -1.5]
    prompts, options = policy._engine.asked[0]
    assert prompts[1] == {"prompt_token_ids": [6, 7]} and options.n == 2 and options.stop_token_ids == [END]
    with torch.no_grad():
        policy.trainable_parameters()[0].add_(1.0)
    policy.generate([[5]], samples=2, max_new_tokens=4, temperature=0.7, seed=3)
    now = dict(policy.model.named_parameters())
    assert set(policy._engine.weights) == set(now)
    assert all(torch.equal(value, now[name]) for name, value in policy._engine.weights.items())


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")  # peft reads a renamed attribute
def test_an_adapter_is_merged_without_changing_the_model() -> None:
    model = with_lora(tiny_model(), 4)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "lora_B" in name:
                one.normal_()
    tokens = torch.tensor([[5, 6, 7]])
    before = model(tokens).logits
    plain = tiny_model(seed=1)
    found = dict(merged_weights(model))
    assert set(found) == set(dict(plain.named_parameters()))
    plain.load_state_dict(found, strict=False)
    torch.testing.assert_close(plain(tokens).logits, before, atol=1e-4, rtol=1e-4)
    assert torch.equal(model(tokens).logits, before)
