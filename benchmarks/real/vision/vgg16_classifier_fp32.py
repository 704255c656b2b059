"""VGG-16 classifier in evaluation, 32 images: linear layers 25088 to 4096 to 4096 to 1000 with ReLU."""

import torch
from torch import nn

BATCH, FEATURES, HIDDEN, CLASSES = 32, 25088, 4096, 1000


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.third = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]
