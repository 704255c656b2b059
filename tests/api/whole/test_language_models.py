"""Language models of transformers are one graph, with a mask or without, with the cache that they return or without.

A tape plays the GPU (`tests.api.live.tape`); the models are small and have random weights, and no part is a program.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.api.live.forward.reads import answered
from hipwright.api.live.forward.results import Forwarded
from hipwright.api.live.forward.watch import watched
from tests.api.live.tape import TapeGraphs

transformers = pytest.importorskip("transformers")

WORDS, CPU = 100, torch.device("cpu")
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": WORDS, "pad_token_id": 0}
WIDE = {**SIZES, "intermediate_size": 128}
GROUPED = {**WIDE, "num_key_value_heads": 2}
OTHER = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0}
FEW = {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128, "d_kv": 16, "vocab_size": WORDS}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("LlamaConfig", GROUPED),
    "Qwen2ForCausalLM": ("Qwen2Config", GROUPED),
    "Qwen3ForCausalLM": ("Qwen3Config", {**GROUPED, "head_dim": 16}),
    "GPT2LMHeadModel": ("GPT2Config", OTHER),
    "OPTForCausalLM": ("OPTConfig", {**SIZES, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", WIDE),
    "PhiForCausalLM": ("PhiConfig", WIDE),
    "BertModel": ("BertConfig", WIDE),
    "T5EncoderModel": ("T5Config", FEW),
    "MambaForCausalLM": ("MambaConfig", {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": WORDS}),
    "MistralForCausalLM": ("MistralConfig", GROUPED),
}
UNCACHED = {"BertModel": {}, "T5EncoderModel": {}, "MistralForCausalLM": {"use_cache": False}}
CACHED = frozenset(MODELS) - UNCACHED.keys()
ALL, SOME = torch.ones(2, 16, dtype=torch.long), torch.ones(2, 16, dtype=torch.long).index_fill(1, torch.arange(3), 0)


@pytest.mark.parametrize("mask", [None, ALL, SOME], ids=["no mask", "nothing hidden", "something hidden"])
@pytest.mark.parametrize("name", MODELS)
def test_a_call_is_one_graph_with_the_right_values(name: str, mask: torch.Tensor | None) -> None:
    config, sizes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
    words, state = torch.randint(1, WORDS, (2, 16)), [*model.parameters(), *model.buffers()]
    inputs = [words] if mask is None else [words, mask]
    for options in [{"use_cache": False}, {"use_cache": True}] if name in CACHED else [UNCACHED.get(name, {})]:

        def call(options: dict[str, bool] = options) -> Forwarded:
            return Forwarded.of(model(*inputs[:1], **({} if mask is None else {"attention_mask": mask}), **options))

        with torch.no_grad():
            expected, seen = watched(call, CPU, inputs, state, Forwarded.all_leaves)
            assert seen.why == ""
            replay, found = TapeGraphs().capture(CPU, lambda call=call, seen=seen: answered(call, seen.reads))  # type: ignore[misc]
            replay()
        assert all(map(torch.equal, expected.tensors, found.tensors))
        if (held := seen.argument_reads) is not None:
            assert held.hold(inputs) and not held.hold([words, ALL if mask is SOME else SOME])
