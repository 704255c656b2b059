"""Mamba-130M selective scan, step by step, 4 x 256 tokens: inner width 1536, state 16, gate by SiLU."""

import torch
from torch import nn

BATCH, TOKENS, WIDTH, STATE = 4, 256, 1536, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_decay = nn.Parameter(torch.rand(WIDTH, STATE) * 2.0)
        self.skip = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x, step, write, read, gate):
        step = nn.functional.softplus(step)
        decay = -torch.exp(self.log_decay)
        state = torch.zeros(x.shape[0], WIDTH, STATE, device=x.device, dtype=x.dtype)
        found = []
        for t in range(TOKENS):
            kept = torch.exp(step[:, t, :, None] * decay)
            state = kept * state + (step[:, t] * x[:, t])[:, :, None] * write[:, t, None, :]
            found.append((state * read[:, t, None, :]).sum(dim=-1))
        return (torch.stack(found, dim=1) + x * self.skip) * nn.functional.silu(gate)


def get_inputs():
    return [
        torch.randn(BATCH, TOKENS, WIDTH),
        torch.randn(BATCH, TOKENS, WIDTH) - 2.0,
        torch.randn(BATCH, TOKENS, STATE),
        torch.randn(BATCH, TOKENS, STATE),
        torch.randn(BATCH, TOKENS, WIDTH),
    ]
