"""A product of 8192 rows of 8192 into 8192 in bfloat16."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8192, 8192, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(8192, 8192, dtype=torch.bfloat16)]
