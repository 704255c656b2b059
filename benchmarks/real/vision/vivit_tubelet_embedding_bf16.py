"""ViViT-B tubelet embedding, 16 videos of 32 frames of 224: tubelets of 2 x 16 x 16, width 768, positions."""

import torch
from torch import nn

BATCH, FRAMES, SIDE, WIDTH = 16, 32, 224, 768
PLACES = (FRAMES // 2) * (SIDE // 16) ** 2
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tubes = nn.Conv3d(3, WIDTH, (2, 16, 16), stride=(2, 16, 16), dtype=DTYPE)
        self.places = nn.Parameter(torch.randn(1, PLACES, WIDTH, dtype=DTYPE) * 0.02)

    def forward(self, x):
        return self.tubes(x).flatten(2).transpose(1, 2) + self.places


def get_inputs():
    return [torch.randn(BATCH, 3, FRAMES, SIDE, SIDE, dtype=DTYPE)]
