"""DeepFM factorization machine of Criteo at batch 16384: 39 fields of width 10, linear term, sigmoid."""

import torch

BATCH, FIELDS, WIDTH = 16384, 39, 10


class Model(torch.nn.Module):
    def forward(self, vectors, linear):
        total = vectors.sum(dim=1)
        pairs = 0.5 * (total * total - (vectors * vectors).sum(dim=1)).sum(dim=-1)
        return torch.sigmoid(pairs * 0.1 + linear.sum(dim=-1))


def get_inputs():
    return [torch.randn(BATCH, FIELDS, WIDTH) * 0.1, torch.randn(BATCH, FIELDS) * 0.1]
