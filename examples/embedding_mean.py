"""A bag of tokens: embeddings looked up, scaled by weights, averaged over the bag."""

import torch
from torch import nn

VOCABULARY, WIDTH = 2000, 192


class Model(nn.Module):
    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens, weights):
        vectors = self.table(tokens)
        return (vectors * weights.unsqueeze(-1)).mean(dim=1)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (64, 30)), torch.rand(64, 30)]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
