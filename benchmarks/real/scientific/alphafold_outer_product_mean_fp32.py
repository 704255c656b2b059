"""AlphaFold 2 outer product mean: 128 sequences of 256 residues, 256 channels to 32, pairs of 128 channels."""

import torch
from torch import nn

SEQUENCES, RESIDUES, CHANNELS, INNER, PAIR = 128, 256, 256, 32, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.left, self.right = nn.Linear(CHANNELS, INNER), nn.Linear(CHANNELS, INNER)
        self.out = nn.Linear(INNER * INNER, PAIR)

    def forward(self, alignment):
        x = self.norm(alignment)
        outer = torch.einsum("sic,sjd->ijcd", self.left(x), self.right(x)) / alignment.shape[0]
        return self.out(outer.flatten(-2))


def get_inputs():
    return [torch.randn(SEQUENCES, RESIDUES, CHANNELS)]
