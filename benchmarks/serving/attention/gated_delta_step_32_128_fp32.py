"""One step of the gated delta rule, whose states are inputs: 64 sequences, 32 heads, keys and values of 128."""

import torch
from torch import nn

BATCH, HEADS, SIZE = 64, 32, 128


class Model(nn.Module):
    def forward(self, state, q, k, v, decay, rate):
        kept = state * torch.exp(-decay)[..., None, None]
        missing = (v - (kept * k.unsqueeze(-1)).sum(dim=-2)) * rate.unsqueeze(-1)
        state.copy_(kept + k.unsqueeze(-1) * missing.unsqueeze(-2))
        return (state * q.unsqueeze(-1)).sum(dim=-2)


def get_inputs():
    q, k = (torch.nn.functional.normalize(torch.randn(BATCH, HEADS, SIZE), dim=-1) for _ in range(2))
    gates = [torch.rand(BATCH, HEADS) * 0.1, torch.rand(BATCH, HEADS)]
    return [torch.randn(BATCH, HEADS, SIZE, SIZE), q, k, torch.randn(BATCH, HEADS, SIZE), *gates]
