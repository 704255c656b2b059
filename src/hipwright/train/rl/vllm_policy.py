"""A policy that samples with vLLM in this process and trains with torch, on one GPU.

It is tested against a stand-in with vLLM's interface (0.10 and later), not against vLLM itself. On the first step of a
run the logged "drift" must be near 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput
from hipwright.targets import TORCH_GPU
from hipwright.train.rl.policy import HFPolicy, SampledAnswer


class VLLMPolicy(HFPolicy):
    """HFPolicy with vLLM for sampling, which gets the present weights at each call.

    path: the model's folder, for vLLM's configuration. memory: the share of the GPU for vLLM's weights and keys; the
    rest is for training. Raises BadInput where vllm is not installed.
    """

    def __init__(
        self, model: Any, path: str | Path, *, end: Sequence[int], pad: int = 0, memory: float = 0.3, length: int = 8192
    ) -> None:
        if find_spec("vllm") is None:
            raise BadInput("vLLM is not installed", hint="pip install vllm, or sample with HFPolicy")
        super().__init__(model, end=end, pad=pad, device=TORCH_GPU, graphs=False)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are passed within this process
        from vllm import LLM  # type: ignore[import-not-found,unused-ignore]  # on few machines only

        self._engine = LLM(
            model=str(path),
            dtype="bfloat16",
            gpu_memory_utilization=memory,
            max_model_len=length,
            logprobs_mode="processed_logprobs",  # at the sampling temperature, as in likelihood()
            enable_prefix_caching=False,  # cached keys would be those of older weights
        )

    def generate(
        self, prompts: Sequence[Sequence[int]], *, samples: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[list[SampledAnswer]]:
        """See PolicyModel. Equal seeds give equal answers as far as vLLM's kernels are deterministic."""
        from vllm import SamplingParams

        self._load_weights()
        options = SamplingParams(
            n=samples,
            max_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed % 2**63,
            logprobs=0,  # of the sampled token alone
            stop_token_ids=list(self._end),
            detokenize=False,
        )
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        answers = self._engine.generate(inputs, options, use_tqdm=False)
        return [[self._read(one) for one in answer.outputs] for answer in answers]

    def _read(self, output: Any) -> SampledAnswer:
        tokens = list(output.token_ids)
        logprobs = [float(known[token].logprob) for token, known in zip(tokens, output.logprobs, strict=True)]
        return SampledAnswer(tokens, logprobs, bool(tokens) and tokens[-1] in self._end)

    def _load_weights(self) -> None:
        def load(network: Any) -> None:
            network.load_weights(merged_weights(self.model))

        self._engine.apply_model(load)


def merged_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """The weights by their names in the base model, with the adapter's added; the model is not changed."""
    adapted = {name: one for name, one in model.named_modules() if hasattr(one, "get_delta_weight")}
    for name, value in model.named_parameters():
        if ".lora_" in name:
            continue
        owner = name.removesuffix(".base_layer.weight")
        if owner != name and owner in adapted:
            layer = adapted[owner]
            value = value + sum(layer.get_delta_weight(one) for one in layer.active_adapters)
        yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), value.detach()
