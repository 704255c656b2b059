"""GCN layer on ogbn-arxiv's sizes: 169343 nodes of 128 features, 1166243 weighted edges, sums by target, ReLU."""

import torch
from torch import nn

NODES, EDGES, WIDTH = 169343, 1166243, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.bias = nn.Parameter(torch.randn(WIDTH) * 0.1)

    def forward(self, x, source, target, weight):
        messages = self.linear(x)[source] * weight[:, None]
        return torch.relu(torch.zeros_like(x).index_add(0, target, messages) + self.bias)


def get_inputs():
    return [
        torch.randn(NODES, WIDTH),
        torch.randint(0, NODES, (EDGES,)),
        torch.randint(0, NODES, (EDGES,)),
        torch.rand(EDGES) * 0.5,
    ]
