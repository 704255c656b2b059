"""A low-rank adapter picked for each of 256 rows from 16, of rank 16 on 4096 columns, added to a residual (LoRA)."""

import torch
from torch import nn

ADAPTERS, WIDTH, RANK = 16, 4096, 16
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x, residual, adapter, down, up):
        short = torch.bmm(x[:, None], down[adapter])
        return residual + torch.bmm(short, up[adapter]).squeeze(1)


def make(rows):
    return [
        torch.randn(rows, WIDTH, dtype=DTYPE),
        torch.randn(rows, WIDTH, dtype=DTYPE),
        torch.randint(0, ADAPTERS, (rows,)),
        torch.randn(ADAPTERS, WIDTH, RANK, dtype=DTYPE) * 0.02,
        torch.randn(ADAPTERS, RANK, WIDTH, dtype=DTYPE) * 0.02,
    ]


def get_inputs():
    return make(256)


def get_input_groups():
    return [make(1), make(31)]
