"""RMSNorm of each head of queries and keys, 32 and 4 heads of 128, 2048 tokens of a packed projection."""

import torch
from torch import nn

TOKENS, HEADS, GROUPS, HEAD, EPS = 2048, 32, 4, 128, 1e-6
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_weight = nn.Parameter(torch.ones(HEAD, dtype=DTYPE))
        self.k_weight = nn.Parameter(torch.ones(HEAD, dtype=DTYPE))

    def forward(self, qkv):
        heads = qkv.unflatten(-1, (HEADS + 2 * GROUPS, HEAD))
        q, k = heads[:, :HEADS].float(), heads[:, HEADS : HEADS + GROUPS].float()
        q = q * torch.rsqrt(q.square().mean(dim=-1, keepdim=True) + EPS)
        k = k * torch.rsqrt(k.square().mean(dim=-1, keepdim=True) + EPS)
        return q.to(DTYPE) * self.q_weight, k.to(DTYPE) * self.k_weight


def get_inputs():
    return [torch.randn(TOKENS, (HEADS + 2 * GROUPS) * HEAD, dtype=DTYPE)]
