"""YOLOv8s spatial pyramid pooling in evaluation, 16 images of 640: 512 channels at 20 x 20, three maxima of 5 x 5."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 16, 512, 20
HALF = CHANNELS // 2
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, HALF, 1, bias=False)
        self.second = nn.Conv2d(4 * HALF, CHANNELS, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(HALF, eps=1e-3), nn.BatchNorm2d(CHANNELS, eps=1e-3)])
        self.to(DTYPE).eval()

    def forward(self, x):
        parts = [nn.functional.silu(self.norms[0](self.first(x)))]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, stride=1, padding=2))
        return nn.functional.silu(self.norms[1](self.second(torch.cat(parts, dim=1))))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE)]
