import ctypes

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
        return x


def get_inputs():
    return [torch.zeros(3)]
