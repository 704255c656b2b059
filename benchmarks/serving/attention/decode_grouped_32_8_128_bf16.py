"""One token of 64 sequences attends to 1024 keys of a dense cache by lengths, 32 query heads on 8, head 128."""

import torch
from torch import nn

BATCH, KEYS, HEADS, GROUPS, HEAD = 64, 1024, 32, 8, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, q, keys, values, lengths):
        q = q.unflatten(1, (GROUPS, HEADS // GROUPS)).float()
        scores = q @ keys.float().transpose(-1, -2) * HEAD**-0.5
        place = torch.arange(keys.shape[2], device=q.device)
        scores = scores.masked_fill(place >= lengths[:, None, None, None], float("-inf"))
        return (torch.softmax(scores, dim=-1) @ values.float()).flatten(1, 2).to(DTYPE)


def get_inputs():
    keys = torch.randn(BATCH, GROUPS, KEYS, HEAD, dtype=DTYPE)
    values = torch.randn(BATCH, GROUPS, KEYS, HEAD, dtype=DTYPE)
    return [torch.randn(BATCH, HEADS, HEAD, dtype=DTYPE), keys, values, torch.randint(1, KEYS, (BATCH,))]
