import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.instance_norm(x, eps=1e-4)


def get_inputs():
    return [torch.randn(32, 64, 256, 256).half()]
