"""One token of 8 sequences attends to 512 keys and values that hold 64 of 128 elements and a bitmap: 32 heads on 8."""

import torch
from torch import nn

BATCH, KEYS, HEADS, GROUPS, HEAD, KEPT = 8, 512, 32, 8, 128, 64
DTYPE = torch.bfloat16


class Model(nn.Module):
    def expanded(self, bitmap, kept):
        bits = (bitmap.int().unsqueeze(-1) >> torch.arange(8, dtype=torch.int32, device=bitmap.device)) & 1
        bits = bits.flatten(-2)
        place = (bits.cumsum(dim=-1) - 1).clamp(0, kept.shape[-1] - 1)
        return torch.where(bits > 0, kept.gather(-1, place), 0.0).float()

    def forward(self, q, key_bits, keys, value_bits, values):
        q = q.unflatten(1, (GROUPS, HEADS // GROUPS)).float()
        scores = q @ self.expanded(key_bits, keys).transpose(-1, -2) * HEAD**-0.5
        return (torch.softmax(scores, dim=-1) @ self.expanded(value_bits, values)).flatten(1, 2).to(DTYPE)


def bitmap(*shape):
    bits = torch.zeros(*shape, HEAD, dtype=torch.int32)
    bits.scatter_(-1, torch.rand(*shape, HEAD).argsort(dim=-1)[..., :KEPT], 1)
    return (bits.unflatten(-1, (-1, 8)) << torch.arange(8, dtype=torch.int32)).sum(dim=-1).to(torch.uint8)


def get_inputs():
    made = [torch.randn(BATCH, HEADS, HEAD, dtype=DTYPE)]
    for _ in range(2):
        made += [bitmap(BATCH, GROUPS, KEYS), torch.randn(BATCH, GROUPS, KEYS, KEPT, dtype=DTYPE)]
    return made
