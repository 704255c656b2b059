"""ViT-L/16 patch embedding with class token and positions, 128 images of 224: patches of 16 x 16, width 1024."""

import torch
from torch import nn

BATCH, SIDE, PATCH, WIDTH = 128, 224, 16, 1024
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH, dtype=DTYPE)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH, dtype=DTYPE) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2 + 1, WIDTH, dtype=DTYPE) * 0.02)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE, dtype=DTYPE)]
