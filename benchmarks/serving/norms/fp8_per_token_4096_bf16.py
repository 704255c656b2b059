"""Quantisation of each token to float8_e4m3fn, width 4096, 2048 tokens and 1."""

import torch
from torch import nn

WIDTH, LARGEST = 4096, 448.0
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x):
        x = x.float()
        step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / LARGEST
        return (x / step).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), step


def get_inputs():
    return [torch.randn(2048, WIDTH, dtype=DTYPE)]


def get_input_groups():
    return [[torch.randn(1, WIDTH, dtype=DTYPE)]]
