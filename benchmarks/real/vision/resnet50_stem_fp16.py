"""ResNet-50 stem in evaluation, 64 images of 224: 7 x 7 convolution of stride 2, batch norm, ReLU, 3 x 3 maximum."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 64, 64, 224
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 7, stride=2, padding=3, bias=False, dtype=DTYPE)
        self.norm = nn.BatchNorm2d(CHANNELS, dtype=DTYPE).eval()

    def forward(self, x):
        return nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE, dtype=DTYPE)]
