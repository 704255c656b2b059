"""Running sums in which large elements count as infinite: most of a long row is Inf."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        steps = torch.where(x > 2.5, torch.full_like(x, float("inf")), x)
        return steps.cumsum(-1)


def get_inputs():
    return [torch.randn(4, 5000)]


def get_init_inputs():
    return []
