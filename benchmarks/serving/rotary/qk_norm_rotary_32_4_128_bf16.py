"""RMSNorm of heads and rotary embedding by halves in one, 32 and 4 heads of 128, 2048 tokens."""

import torch
from torch import nn

TOKENS, HEADS, GROUPS, HEAD, LONGEST, EPS = 2048, 32, 4, 128, 4096, 1e-6
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_weight = nn.Parameter(torch.ones(HEAD, dtype=DTYPE))
        self.k_weight = nn.Parameter(torch.ones(HEAD, dtype=DTYPE))
        rates = 1.0 / 10000.0 ** (torch.arange(0, HEAD, 2).float() / HEAD)
        angles = torch.outer(torch.arange(LONGEST).float(), rates)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x, weight, cos, sin):
        x = x.float()
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS) * weight.float()
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(DTYPE)

    def forward(self, qkv, positions):
        heads = qkv.unflatten(-1, (HEADS + 2 * GROUPS, HEAD))
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        q = self.turned(heads[:, :HEADS], self.q_weight, cos, sin)
        return q, self.turned(heads[:, HEADS : HEADS + GROUPS], self.k_weight, cos, sin)


def get_inputs():
    qkv = torch.randn(TOKENS, (HEADS + 2 * GROUPS) * HEAD, dtype=DTYPE)
    return [qkv, torch.randint(0, LONGEST, (TOKENS,))]
