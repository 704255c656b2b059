"""A small image classifier: two stages of convolution, BatchNorm, ReLU and pooling, then a linear head."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, channels: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(2 * channels)
        self.head = nn.Linear(2 * channels, classes)
        for norm in (self.norm1, self.norm2):
            norm.running_mean.normal_(0.0, 0.2)
            norm.running_var.uniform_(0.6, 1.6)
        self.eval()

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.norm1(self.conv1(x))), 2)
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean(dim=(2, 3)))


def get_inputs():
    return [torch.randn(4, 3, 36, 36)]


def get_init_inputs():
    return [16, 10]
