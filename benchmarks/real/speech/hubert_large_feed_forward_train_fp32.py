"""Training mode: HuBERT large feed-forward with dropout 0.1 after GELU and at the end, 8 x 499 frames: 1024, 4096."""

import torch
from torch import nn

BATCH, FRAMES, WIDTH, HIDDEN = 8, 499, 1024, 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.inner, self.outer = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x):
        y = self.inner(nn.functional.gelu(self.up(self.norm(x))))
        return x + self.outer(self.down(y))


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH)]
