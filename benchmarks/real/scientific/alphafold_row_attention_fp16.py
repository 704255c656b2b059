"""AlphaFold 2 gated row attention with pair bias: 128 sequences of 256 residues, 256 channels, 8 heads of 32."""

import torch
from torch import nn

SEQUENCES, RESIDUES, HEADS, HEAD, PAIR = 128, 256, 8, 32, 128
WIDTH = HEADS * HEAD
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.pair_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(PAIR)
        self.qkv, self.gate = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.bias, self.out = nn.Linear(PAIR, HEADS, bias=False), nn.Linear(WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, alignment, pair):
        x = self.norm(alignment)
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        bias = self.bias(self.pair_norm(pair)).permute(2, 0, 1)
        weights = torch.softmax(q @ k.transpose(-1, -2) * HEAD**-0.5 + bias, dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
        return alignment + self.out(torch.sigmoid(self.gate(x)) * mixed)


def get_inputs():
    return [
        torch.randn(SEQUENCES, RESIDUES, WIDTH, dtype=DTYPE),
        torch.randn(RESIDUES, RESIDUES, PAIR, dtype=DTYPE),
    ]
