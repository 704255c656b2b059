"""A sparse matrix by rows (CSR) of 131072 x 131072 with 16 elements a row in the mean, times 64 columns."""

import torch
from torch import nn

ROWS, EACH, WIDTH = 1 << 17, 16, 64


class Model(nn.Module):
    def forward(self, starts, columns, values, x):
        rows = torch.arange(starts.shape[0] - 1, device=x.device)
        row = torch.repeat_interleave(rows, starts.diff(), output_size=columns.shape[0])
        made = torch.zeros(rows.shape[0], x.shape[1], device=x.device)
        return made.index_add(0, row, values.unsqueeze(-1) * x[columns])


def make(rows, each, width):
    cuts = torch.randint(0, rows * each + 1, (rows - 1,)).sort().values
    starts = torch.cat([torch.zeros(1, dtype=torch.long), cuts, torch.tensor([rows * each])])
    return [starts, torch.randint(0, rows, (rows * each,)), torch.randn(rows * each), torch.randn(rows, width)]


def get_inputs():
    return make(ROWS, EACH, WIDTH)


def get_input_groups():
    return [make(500, 7, 32)]
