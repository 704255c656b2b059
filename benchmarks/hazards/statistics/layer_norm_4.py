"""Two layer norms over four elements: rows of nearly equal values."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(torch.nn.functional.layer_norm(x + x.tanh(), (4,)) + x, (4,))


def get_inputs():
    return [torch.randn(6, 9, 4)]
