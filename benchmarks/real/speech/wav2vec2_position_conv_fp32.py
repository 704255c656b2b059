"""wav2vec 2.0 base positional convolution, 8 x 749 frames: width 768, kernel 128, 16 groups, GELU, LayerNorm."""

import torch
from torch import nn

BATCH, FRAMES, WIDTH, KERNEL, GROUPS = 8, 749, 768, 128, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=GROUPS)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        places = nn.functional.gelu(self.conv(x.transpose(1, 2))[:, :, :-1])
        return self.norm(x + places.transpose(1, 2))


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH)]
