"""GraphCast embedding of the 721 x 1440 grid: 474 features to 512, SiLU, 512, LayerNorm."""

import torch
from torch import nn

POINTS, FEATURES, WIDTH = 721 * 1440, 474, 512
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.to(DTYPE)

    def forward(self, x):
        return self.norm(self.second(nn.functional.silu(self.first(x))))


def get_inputs():
    return [torch.randn(POINTS, FEATURES, dtype=DTYPE)]
