"""AutoInt interacting layer on Criteo at batch 8192: 39 fields of width 16, 2 heads of 32, residual, ReLU."""

import torch
from torch import nn

BATCH, FIELDS, WIDTH, HEADS, HEAD = 8192, 39, 16, 2, 32
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, HEADS * HEAD, bias=False), nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.v, self.rest = nn.Linear(WIDTH, HEADS * HEAD, bias=False), nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.to(DTYPE)

    def forward(self, x):
        q, k, v = (f(x).view(-1, FIELDS, HEADS, HEAD).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
        return torch.relu(mixed.transpose(1, 2).reshape(-1, FIELDS, HEADS * HEAD) + self.rest(x))


def get_inputs():
    return [torch.randn(BATCH, FIELDS, WIDTH, dtype=DTYPE)]
