"""Mistral-7B attention over 8192 tokens with a sliding window of 4096: 32 heads of 128, 8 key-value heads."""

import torch

TOKENS, WINDOW, HEADS, KV_HEADS, HEAD = 8192, 4096, 32, 8, 128
DTYPE = torch.float16


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        place = torch.arange(q.shape[2], device=q.device)
        behind = place[:, None] - place[None, :]
        seen = (behind >= 0) & (behind < WINDOW)
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, dim=1) for one in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def get_inputs():
    return [
        torch.randn(1, HEADS, TOKENS, HEAD, dtype=DTYPE),
        torch.randn(1, KV_HEADS, TOKENS, HEAD, dtype=DTYPE),
        torch.randn(1, KV_HEADS, TOKENS, HEAD, dtype=DTYPE),
    ]
