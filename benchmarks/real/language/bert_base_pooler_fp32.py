"""BERT base pooler: first of 128 tokens, linear 768 x 768, tanh, for 2 sequences."""

import torch
from torch import nn

BATCH, TOKENS, WIDTH = 2, 128, 768


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.dense(x[:, 0]))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]
