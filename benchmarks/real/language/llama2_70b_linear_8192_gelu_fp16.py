"""One product of 8192 x 8192 x 8192 with bias and GELU: a square layer at the width of Llama-2 70B."""

import torch
from torch import nn

TOKENS, WIDTH = 8192, 8192
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=DTYPE)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH, dtype=DTYPE)]
