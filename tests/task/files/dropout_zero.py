import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return self.drop(x)


def get_inputs():
    return [torch.randn(64)]


def get_init_inputs():
    return [[], {"p": 0.0}]
