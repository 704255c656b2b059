"""HSTU attention at batch 16: 1024 events, 4 heads of 128, SiLU instead of softmax, relative bias, gated LayerNorm."""

import torch
from torch import nn

BATCH, EVENTS, HEADS, HEAD = 16, 1024, 4, 128
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2 * EVENTS - 1, dtype=DTYPE) * 0.1)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], HEADS, HEAD).transpose(1, 2)

    def forward(self, u, q, k, v):
        events = q.shape[1]
        place = torch.arange(events, device=q.device)
        bias = self.bias[place[None, :] - place[:, None] + EVENTS - 1]
        weights = nn.functional.silu(self.heads(q) @ self.heads(k).transpose(-1, -2) * HEAD**-0.5 + bias)
        earlier = torch.ones(events, events, dtype=torch.bool, device=q.device).tril()
        weights = weights.masked_fill(~earlier, 0.0) / EVENTS
        mixed = (weights @ self.heads(v)).transpose(1, 2).reshape(q.shape)
        return nn.functional.layer_norm(mixed, (WIDTH,), eps=1e-6) * u


def get_inputs():
    return [
        torch.randn(BATCH, EVENTS, WIDTH, dtype=DTYPE),
        torch.randn(BATCH, EVENTS, WIDTH, dtype=DTYPE),
        torch.randn(BATCH, EVENTS, WIDTH, dtype=DTYPE),
        torch.randn(BATCH, EVENTS, WIDTH, dtype=DTYPE),
    ]
