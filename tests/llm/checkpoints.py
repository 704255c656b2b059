"""Checkpoints for tests, made here in seconds: random ones, and one that has learnt a single answer by heart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hipwright.llm import compact
from hipwright.train.tiny import tiny

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples" / "bias_gelu.py"
PROGRAM = """\
BLOCK = 256
HIP = r'''
extern "C" __global__ void run(const float* x, const float* b, float* out, long n, long inner, int channels) {
  for (long i = blockIdx.x * (long)BLOCK + threadIdx.x; i < n; i += (long)gridDim.x * BLOCK)
    out[i] = gelu(x[i] + b[(i / inner) % channels]);
}
'''
def forward(self, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    run[cdiv(n, BLOCK), BLOCK](x, self.bias, out, n, x.shape[2] * x.shape[3], x.shape[1])
    return out
"""
"""A right program for EXAMPLE in the short form: `gelu` is the engine's."""


def random_chat(folder: Path) -> Path:
    """Two random layers; what they write is garbage."""
    model, tokenizer = tiny("qwen2", [EXAMPLE.read_text()])
    return save(folder, model, tokenizer)


def by_heart(folder: Path) -> Path:
    """A compact checkpoint that answers EXAMPLE with PROGRAM, learnt in some seconds."""
    import torch

    prompt = compact.prompt(EXAMPLE.read_text())
    _, tokenizer = tiny("qwen2", [prompt, PROGRAM])
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=96, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
    )
    question, answer = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (asked, PROGRAM))
    ids = torch.tensor([[*question, *answer, tokenizer.eos_token_id]])
    labels = ids.clone()
    labels[0, : len(question)] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.005:
            break
    return save(folder, model, tokenizer, {"form": "compact", "temperature": 0.05})


def save(folder: Path, model: Any, tokenizer: Any, meta: dict[str, Any] | None = None) -> Path:
    """As `hipwright train` leaves one."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if meta is not None:
        (folder / "hipwright.json").write_text(json.dumps(meta))
    return folder
