"""A two-layer model, a byte-level tokenizer, a toy environment and small fakes for the tests of learning."""

from __future__ import annotations

from typing import Any

import torch


def tiny_model(seed: int = 0, vocabulary: int = 64, hidden: int = 64, layers: int = 2) -> Any:
    """A Qwen2 with random weights, float32."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    return Qwen2ForCausalLM(config)
