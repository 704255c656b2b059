"""SASRec block at batch 128: 200 items of width 50, one head, causal, padding masked, pointwise feed-forward."""

import torch
from torch import nn

BATCH, ITEMS, WIDTH = 128, 200, 50


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH, eps=1e-8), nn.LayerNorm(WIDTH, eps=1e-8)
        self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, ids):
        there = (ids != 0).to(x.dtype)[..., None]
        x = x * there
        y = self.before(x)
        scores = self.q(y) @ self.k(x).transpose(1, 2) * WIDTH**-0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        y = self.between(y + self.out(weights @ self.v(x)))
        return (y + self.down(torch.relu(self.up(y)))) * there


def get_inputs():
    return [torch.randn(BATCH, ITEMS, WIDTH), torch.randint(0, 20, (BATCH, ITEMS))]
