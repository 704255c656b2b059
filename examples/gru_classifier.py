"""Token embeddings, a GRU, and class log-probabilities from its final hidden state."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 300


class Model(nn.Module):
    def __init__(self, vocabulary: int, hidden: int, classes: int):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens):
        _, last = self.rnn(self.embed(tokens))
        return F.log_softmax(self.head(last.squeeze(0)), dim=-1)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (6, 10))]


def get_init_inputs():
    return [VOCABULARY, 40, 12]
