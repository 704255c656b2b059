"""Reciprocal deviations of shifted rows: a small variance beside a large mean."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 100.0).var(-1).rsqrt()


def get_inputs():
    return [torch.randn(33, 24)]
