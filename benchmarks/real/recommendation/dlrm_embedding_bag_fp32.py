"""DLRM embedding bag: sums of 10 rows of a table of 9980333 x 128 (MLPerf's, 10 million rows at most), batch 16384."""

import torch

BATCH, PICKED, ROWS, WIDTH = 16384, 10, 9980333, 128


class Model(torch.nn.Module):
    def forward(self, table, indices):
        return torch.nn.functional.embedding_bag(indices, table, mode="sum")


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randint(0, ROWS, (BATCH, PICKED))]
