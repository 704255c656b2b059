"""A product of 8192 rows of 8192 into 8192 in bfloat16 with GELU and a gate."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8192, 8192, dtype=torch.bfloat16)

    def forward(self, x, y):
        return F.gelu(self.linear(x)) * y + y


def get_inputs():
    return [torch.randn(8192, 8192, dtype=torch.bfloat16), torch.randn(8192, 8192, dtype=torch.bfloat16)]
