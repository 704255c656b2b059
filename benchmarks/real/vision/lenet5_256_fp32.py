"""LeNet-5 on 256 digits of 32 x 32: two convolutions of 5 x 5 with tanh and mean pooling, three linear layers."""

import torch
from torch import nn

BATCH, SIDE, CLASSES = 256, 32, 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.dense = nn.ModuleList([nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)])

    def forward(self, x):
        x = nn.functional.avg_pool2d(torch.tanh(self.first(x)), 2)
        x = nn.functional.avg_pool2d(torch.tanh(self.second(x)), 2).flatten(1)
        x = torch.tanh(self.dense[0](x))
        return self.dense[2](torch.tanh(self.dense[1](x)))


def get_inputs():
    return [torch.rand(BATCH, 1, SIDE, SIDE)]
