"""wav2vec 2.0 base feature encoder, 2 x 5 seconds of 16 kHz: 7 convolutions of 512 channels, group norm, GELU."""

import torch
from torch import nn

BATCH, SAMPLES, CHANNELS = 2, 80000, 512
KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (1, *[CHANNELS] * 6)
        self.layers = nn.ModuleList(
            [nn.Conv1d(i, CHANNELS, k, stride=s, bias=False) for i, k, s in zip(sizes, KERNELS, STRIDES, strict=True)]
        )
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight)
        self.norm = nn.GroupNorm(CHANNELS, CHANNELS)

    def forward(self, x):
        x = nn.functional.gelu(self.norm(self.layers[0](x[:, None])))
        for layer in self.layers[1:]:
            x = nn.functional.gelu(layer(x))
        return x.transpose(1, 2)


def get_inputs():
    return [torch.randn(BATCH, SAMPLES)]
