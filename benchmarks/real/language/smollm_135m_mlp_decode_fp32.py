"""SmolLM-135M RMSNorm and SwiGLU MLP of one decoded token for each of 4 sequences: width 576, hidden 1536."""

import torch
from torch import nn

BATCH, WIDTH, HIDDEN = 4, 576, 1536


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]
