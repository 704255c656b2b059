import torch
import torch.nn as nn


class Model(nn.Module):
    """Writes its first input, counts its calls, and returns the second as it is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x, y):
        x.add_(1)
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.cache = x
        return y, x * 2, y.view(-1)


def get_inputs():
    return [torch.zeros(3, 4), torch.ones(3, 4)]
