"""T5-large encoder attention with relative position buckets, 8 x 512 tokens: 16 heads of 64, 32 buckets up to 128."""

import math

import torch
from torch import nn

BATCH, TOKENS, HEADS, HEAD, BUCKETS, FARTHEST = 8, 512, 16, 64, 32, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(BUCKETS, HEADS, dtype=DTYPE)

    def buckets(self, steps, device):
        place = torch.arange(steps, device=device)
        ahead = place[None, :] - place[:, None]
        half, exact = BUCKETS // 2, BUCKETS // 4
        distance = ahead.abs()
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(FARTHEST / exact) * (half - exact)
        far = (exact + far.long()).clamp(max=half - 1)
        return torch.where(ahead > 0, half, 0) + torch.where(distance < exact, distance, far)

    def forward(self, q, k, v):
        bias = self.bias(self.buckets(q.shape[2], q.device)).permute(2, 0, 1)
        scores = q @ k.transpose(-1, -2) + bias
        return torch.softmax(scores.float(), dim=-1).to(q.dtype) @ v


def get_inputs():
    return [
        torch.randn(BATCH, HEADS, TOKENS, HEAD, dtype=DTYPE) * 0.125,
        torch.randn(BATCH, HEADS, TOKENS, HEAD, dtype=DTYPE),
        torch.randn(BATCH, HEADS, TOKENS, HEAD, dtype=DTYPE),
    ]
