"""Checkpoints for tests, made in seconds: random ones, and one that always gives the same answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hipwright.llm import compact
from hipwright.train.tiny import tiny_model

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
"""A correct program for EXAMPLE in the short form; `gelu` is the engine's."""


def random_chat(folder: Path, *, brief: bool = False) -> Path:
    """Two random layers with meaningless output. brief: every 40th token ends an answer."""
    model, tokenizer = tiny_model("qwen2", [EXAMPLE.read_text()])
    if brief:
        model.generation_config.eos_token_id = list(range(2, len(tokenizer), 40))
    return save(folder, model, tokenizer)


def by_heart(folder: Path) -> Path:
    """A compact checkpoint that answers EXAMPLE with PROGRAM: a GPT-2 whose next token depends on the position alone.

    Each position of the answer has a direction of its own, and the head reads the token off it; layers add nothing.
    """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    prompt = compact.prompt(EXAMPLE.read_text())
    _, tokenizer = tiny_model("qwen2", [prompt, PROGRAM])
    conversation = [{"role": "user", "content": prompt}]
    asked = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
    question, answer = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (asked, PROGRAM))
    answer = [*answer, tokenizer.eos_token_id]
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=1024,
        n_embd=len(answer),
        n_layer=2,
        n_head=1,
        n_inner=8,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "ln_" not in name:
                weights.zero_()
        for place, token in enumerate(answer):
            model.transformer.wpe.weight[len(question) - 1 + place, place] = 1.0
            model.lm_head.weight[token, place] = 1.0
    return save(folder, model, tokenizer, {"form": "compact", "temperature": 0.05})


def save(folder: Path, model: Any, tokenizer: Any, meta: dict[str, Any] | None = None) -> Path:
    """Saves a checkpoint as `hipwright train` does."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if meta is not None:
        (folder / "hipwright.json").write_text(json.dumps(meta))
    return folder
