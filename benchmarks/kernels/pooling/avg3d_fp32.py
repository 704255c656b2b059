import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.avg_pool3d(x, kernel_size=2, stride=2)


def get_inputs():
    return [torch.randn(8, 32, 64, 112, 112)]
