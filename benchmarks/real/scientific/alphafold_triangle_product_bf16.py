"""AlphaFold 2 triangle multiplication with outgoing edges, 256 residues: 128 channels, gated, two LayerNorms."""

import torch
from torch import nn

RESIDUES, CHANNELS = 256, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.left, self.right = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.left_gate, self.right_gate = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.gate, self.out = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.to(DTYPE)

    def forward(self, pair):
        z = self.before(pair)
        left = torch.sigmoid(self.left_gate(z)) * self.left(z)
        right = torch.sigmoid(self.right_gate(z)) * self.right(z)
        product = torch.einsum("ikc,jkc->ijc", left, right)
        return pair + torch.sigmoid(self.gate(z)) * self.out(self.after(product))


def get_inputs():
    return [torch.randn(RESIDUES, RESIDUES, CHANNELS, dtype=DTYPE)]
