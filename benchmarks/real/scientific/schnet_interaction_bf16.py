"""SchNet continuous-filter convolution: 32768 atoms of 128 features, 32 neighbours, 50 Gaussians up to 10."""

import math

import torch
from torch import nn

ATOMS, NEIGHBOURS, WIDTH, GAUSSIANS, CUT = 32768, 32, 128, 50, 10.0
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(GAUSSIANS, WIDTH, dtype=DTYPE), nn.Linear(WIDTH, WIDTH, dtype=DTYPE)
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False, dtype=DTYPE)
        self.outer = nn.Linear(WIDTH, WIDTH, dtype=DTYPE)
        self.register_buffer("centres", torch.linspace(0.0, CUT, GAUSSIANS))

    def softplus(self, x):
        return nn.functional.softplus(x) - math.log(2.0)

    def forward(self, x, neighbours, distance):
        width = CUT / (GAUSSIANS - 1)
        basis = torch.exp(-0.5 * ((distance[..., None] - self.centres) / width).square()).to(x.dtype)
        filters = self.second(self.softplus(self.first(basis)))
        smooth = 0.5 * (torch.cos(distance * (math.pi / CUT)) + 1.0)
        messages = self.inner(x)[neighbours] * filters * smooth[..., None].to(x.dtype)
        return x + self.softplus(self.outer(messages.sum(dim=1)))


def get_inputs():
    return [
        torch.randn(ATOMS, WIDTH, dtype=DTYPE),
        torch.randint(0, ATOMS, (ATOMS, NEIGHBOURS)),
        torch.rand(ATOMS, NEIGHBOURS) * CUT,
    ]
