"""RNN-T prediction network, 16 x 64 labels: embedding of 1025 labels, one LSTM layer of 640."""

import torch
from torch import nn

BATCH, LABELS, WIDTH, OUTPUTS = 16, 64, 640, 1025


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(OUTPUTS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, labels):
        found, _ = self.lstm(self.embedding(labels))
        return found


def get_inputs():
    return [torch.randint(0, OUTPUTS, (BATCH, LABELS))]
