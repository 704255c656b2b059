"""Norms by rows of a weight of 8192 x 8192 with an adapter of rank 384, as DoRA scales it; the sum is not returned."""

import torch
from torch import nn

SIZE, RANK, SCALE = 8192, 384, 2.0


class Model(nn.Module):
    def forward(self, weight, up, down):
        return torch.linalg.vector_norm(weight + SCALE * (up @ down), dim=1)


def get_inputs():
    return [torch.randn(SIZE, SIZE) * 0.02, torch.randn(SIZE, RANK) * 0.05, torch.randn(RANK, SIZE) * 0.05]
