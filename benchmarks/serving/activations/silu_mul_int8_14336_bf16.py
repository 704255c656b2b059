"""SiLU times the other half, then symmetric int8 quantisation of each of 1024 tokens, width 14336."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 14336
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x):
        gate, up = x.float().chunk(2, dim=-1)
        value = F.silu(gate) * up
        step = value.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 127.0
        return torch.round(value / step).clamp(-128, 127).to(torch.int8), step


def get_inputs():
    return [torch.randn(1024, 2 * WIDTH, dtype=DTYPE)]
