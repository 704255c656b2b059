import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.fc = nn.Linear(inside, outside, dtype=torch.bfloat16)

    def forward(self, x):
        return nn.functional.gelu(self.fc(x))


def get_inputs():
    return [torch.randn(16384, 1024).bfloat16()]


def get_init_inputs():
    return [1024, 2048]
