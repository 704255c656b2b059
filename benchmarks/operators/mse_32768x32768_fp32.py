"""The mean squared error of 8 GB."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return F.mse_loss(x, y)


def get_inputs():
    return [torch.randn(32768, 32768), torch.randn(32768, 32768)]
