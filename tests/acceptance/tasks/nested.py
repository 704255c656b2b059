"""A dict of outputs of five kinds, a transposed input, a dict and a bool among the inputs, a buffer that counts."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, options, flag):
        self.count += 1
        y = torch.relu(x * self.scale + options["bias"])
        return {"y": y, "index": y.argmax(-1), "mask": y > 0.5, "pair": (y.half(), [y.sum(-1)]), "n": 3}


def get_inputs():
    return [torch.randn(33, 70).t(), {"bias": torch.randn(33)}, True]


def get_init_inputs():
    return [1.5]
