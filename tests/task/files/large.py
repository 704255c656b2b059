import torch
import torch.nn as nn


class Model(nn.Module):
    """Inputs too large to draw often."""

    def forward(self, x, y, index):
        return torch.relu(x) + y + index[:, None]


def get_inputs():
    return [torch.rand(2048, 16384) * 3, torch.randn((2048, 1)), torch.randint(0, 7, (2048,))]
