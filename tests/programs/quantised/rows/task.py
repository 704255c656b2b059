"""Rows as float8_e4m3fn."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        x = x.float()
        step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
        return (x / step).clamp(-448, 448).to(torch.float8_e4m3fn), step


def get_inputs():
    return [torch.randn(64, 512, dtype=torch.bfloat16)]
