"""Hadamard rotation of blocks of 32, then MXFP4: codes of e2m1 two a byte, powers of two; 2048 tokens of width 4096."""

import torch
from torch import nn

WIDTH, BLOCK, MOST = 4096, 32, 2
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        rotation = torch.ones(1, 1)
        while rotation.shape[0] < BLOCK:
            rotation = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), rotation)
        self.register_buffer("rotation", rotation * BLOCK**-0.5)

    def forward(self, x):
        x = x.float().unflatten(-1, (-1, BLOCK)) @ self.rotation
        _, above = torch.frexp(x.abs().amax(dim=-1, keepdim=True))
        shared = (above - 1 - MOST).clamp(-127, 127)
        size = (x.abs() * torch.exp2(-shared.float())).clamp(max=6.0)
        binade = (size >= 2.0).int() + (size >= 4.0).int()
        codes = torch.round(size * torch.exp2(1.0 - binade.float())).int() + 2 * binade
        signed = (codes | (x < 0).int() * 8).flatten(1)
        return (signed[:, ::2] | signed[:, 1::2] << 4).to(torch.uint8), (shared.squeeze(-1) + 127).to(torch.uint8)


def get_inputs():
    return [torch.randn(2048, WIDTH, dtype=DTYPE)]
