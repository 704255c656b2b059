import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return nn.functional.huber_loss(x, y, delta=0.7)


def get_inputs():
    return [torch.randn(8192, 16384), torch.randn(8192, 16384)]
