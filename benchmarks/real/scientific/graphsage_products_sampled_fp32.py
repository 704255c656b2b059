"""GraphSAGE layer with 15 sampled neighbours on ogbn-products' 2449029 nodes of 100 features, 131072 nodes to 256."""

import torch
from torch import nn

NODES, FEATURES, SEEDS, SAMPLED, HIDDEN = 2449029, 100, 131072, 15, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.other = nn.Linear(FEATURES, HIDDEN), nn.Linear(FEATURES, HIDDEN, bias=False)

    def forward(self, features, seeds, sampled):
        mean = features[sampled].mean(dim=1)
        return torch.relu(self.own(features[seeds]) + self.other(mean))


def get_inputs():
    return [
        torch.randn(NODES, FEATURES),
        torch.randint(0, NODES, (SEEDS,)),
        torch.randint(0, NODES, (SEEDS, SAMPLED)),
    ]
