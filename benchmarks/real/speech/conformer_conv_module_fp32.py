"""Conformer-L convolution module in evaluation, 16 x 500 frames: width 512, GLU, depthwise kernel 31, SiLU."""

import torch
from torch import nn

BATCH, FRAMES, WIDTH, KERNEL = 16, 500, 512, 31


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.batch_norm = nn.BatchNorm1d(WIDTH).eval()
        self.second = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x):
        y = nn.functional.glu(self.first(self.norm(x).transpose(1, 2)), dim=1)
        y = nn.functional.silu(self.batch_norm(self.depthwise(y)))
        return x + self.second(y).transpose(1, 2)


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH)]
