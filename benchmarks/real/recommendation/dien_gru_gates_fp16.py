"""DIEN attentional GRU gates (AUGRU) of one step at batch 16384: hidden 64, update gate scaled by attention."""

import torch
from torch import nn

BATCH, WIDTH = 16384, 64
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH, dtype=DTYPE)
        self.states = nn.Linear(WIDTH, 3 * WIDTH, dtype=DTYPE)

    def forward(self, x, state, attention):
        xr, xu, xn = self.inputs(x).chunk(3, dim=-1)
        hr, hu, hn = self.states(state).chunk(3, dim=-1)
        update = torch.sigmoid(xu + hu) * attention[:, None]
        new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        return (1.0 - update) * state + update * new


def get_inputs():
    return [
        torch.randn(BATCH, WIDTH, dtype=DTYPE),
        torch.randn(BATCH, WIDTH, dtype=DTYPE),
        torch.rand(BATCH, dtype=DTYPE),
    ]
