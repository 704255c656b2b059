import torch
from torch import nn


class Model(nn.Module):
    def forward(self, tokens, words, places):
        return nn.functional.embedding(tokens, words) + places[: tokens.shape[1]]


def get_inputs():
    return [torch.randint(0, 1000, (4, 128)), torch.randn(1000, 256), torch.randn(128, 256)]
