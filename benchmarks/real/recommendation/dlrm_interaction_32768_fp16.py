"""DLRM dot interaction of MLPerf's configuration at batch 32768: 27 vectors of 128, lower triangle."""

import torch
from torch import nn

BATCH, VECTORS, WIDTH = 32768, 27, 128
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        rows, columns = torch.tril_indices(VECTORS, VECTORS, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense, sparse):
        every = torch.cat((dense[:, None], sparse), dim=1)
        products = torch.bmm(every, every.transpose(1, 2))
        return torch.cat((dense, products[:, self.rows, self.columns]), dim=1)


def get_inputs():
    return [torch.randn(BATCH, WIDTH, dtype=DTYPE), torch.randn(BATCH, VECTORS - 1, WIDTH, dtype=DTYPE)]
