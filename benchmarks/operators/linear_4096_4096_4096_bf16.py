"""A product of 4096 rows of 4096 into 4096 in bfloat16."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4096, 4096, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(4096, 4096, dtype=torch.bfloat16)]
