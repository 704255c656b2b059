"""MMoE at batch 8192: 499 features, 8 experts of 256 with ReLU, 4 tasks with softmax gates and towers of 64."""

import torch
from torch import nn

BATCH, FEATURES, EXPERTS, HIDDEN, TASKS, TOWER = 8192, 499, 8, 256, 4, 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(torch.randn(EXPERTS, FEATURES, HIDDEN) * FEATURES**-0.5)
        self.gates = nn.Parameter(torch.randn(TASKS, FEATURES, EXPERTS) * FEATURES**-0.5)
        self.towers = nn.Parameter(torch.randn(TASKS, HIDDEN, TOWER) * HIDDEN**-0.5)
        self.heads = nn.Parameter(torch.randn(TASKS, TOWER, 1) * TOWER**-0.5)

    def forward(self, x):
        inner = torch.relu(torch.einsum("bf,efh->beh", x, self.experts))
        gates = torch.softmax(torch.einsum("bf,tfe->tbe", x, self.gates), dim=-1)
        mixed = torch.einsum("tbe,beh->tbh", gates, inner)
        return torch.sigmoid(torch.relu(mixed @ self.towers) @ self.heads)[..., 0].t()


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]
