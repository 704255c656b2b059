"""Llama-3 70B attention of one decoded token: batch 32, cache of 4096, 64 heads of 128, 8 key-value heads."""

import torch

BATCH, CACHE, HEADS, KV_HEADS, HEAD = 32, 4096, 64, 8, 128
DTYPE = torch.bfloat16


class Model(torch.nn.Module):
    def forward(self, q, keys, values):
        batch = q.shape[0]
        grouped = q.view(batch, KV_HEADS, HEADS // KV_HEADS, HEAD)
        scores = (grouped @ keys.transpose(-1, -2)).float() * HEAD**-0.5
        return (torch.softmax(scores, dim=-1).to(q.dtype) @ values).reshape(batch, HEADS, HEAD)


def get_inputs():
    return [
        torch.randn(BATCH, HEADS, HEAD, dtype=DTYPE),
        torch.randn(BATCH, KV_HEADS, CACHE, HEAD, dtype=DTYPE),
        torch.randn(BATCH, KV_HEADS, CACHE, HEAD, dtype=DTYPE),
    ]
