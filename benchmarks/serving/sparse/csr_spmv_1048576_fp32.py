"""A sparse matrix by rows (CSR) of 1048576 x 1048576 with 8 elements a row in the mean, times a vector."""

import torch
from torch import nn

ROWS, EACH = 1 << 20, 8


class Model(nn.Module):
    def forward(self, starts, columns, values, x):
        rows = torch.arange(starts.shape[0] - 1, device=x.device)
        row = torch.repeat_interleave(rows, starts.diff(), output_size=columns.shape[0])
        return torch.zeros(rows.shape[0], device=x.device).index_add(0, row, values * x[columns])


def make(rows, each):
    cuts = torch.randint(0, rows * each + 1, (rows - 1,)).sort().values
    starts = torch.cat([torch.zeros(1, dtype=torch.long), cuts, torch.tensor([rows * each])])
    return [starts, torch.randint(0, rows, (rows * each,)), torch.randn(rows * each), torch.randn(rows)]


def get_inputs():
    return make(ROWS, EACH)


def get_input_groups():
    return [make(1000, 5)]
