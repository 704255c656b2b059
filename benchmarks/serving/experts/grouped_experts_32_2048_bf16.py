"""Products of 2048 rows, sorted by expert, with their experts' matrices of 2048 x 1024: 32 experts, `_grouped_mm`."""

import torch
from torch import nn

EXPERTS, WIDTH, HIDDEN = 32, 2048, 1024
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x, weight, ends):
        return nn.functional.silu(torch._grouped_mm(x, weight, offs=ends))


def make(rows):
    cuts = torch.randint(0, rows + 1, (EXPERTS - 1,)).sort().values
    return [
        torch.randn(rows, WIDTH, dtype=DTYPE),
        torch.randn(EXPERTS, WIDTH, HIDDEN, dtype=DTYPE) * 0.02,
        torch.cat([cuts, torch.tensor([rows])]).int(),
    ]


def get_inputs():
    return make(2048)


def get_input_groups():
    return [make(64), make(512)]
