"""One token of 32 sequences attends to the last 128 of 1024 keys, with a sink a head: 64 query heads on 8 of 64."""

import torch
from torch import nn

BATCH, KEYS, HEADS, GROUPS, HEAD, WINDOW = 32, 1024, 64, 8, 64, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(HEADS, dtype=DTYPE))

    def forward(self, q, keys, values, lengths):
        q = q.unflatten(1, (GROUPS, HEADS // GROUPS)).float()
        scores = q @ keys.float().transpose(-1, -2) * HEAD**-0.5
        place = torch.arange(keys.shape[2], device=q.device)
        end = lengths.clamp(max=keys.shape[2])[:, None, None, None]  # at other shapes too, some keys are seen
        scores = scores.masked_fill((place >= end) | (place < end - WINDOW), float("-inf"))
        sinks = self.sinks.float().view(1, GROUPS, HEADS // GROUPS, 1)
        top = torch.maximum(scores.amax(dim=-1, keepdim=True), sinks)
        shares = torch.exp(scores - top)
        shares = shares / (shares.sum(dim=-1, keepdim=True) + torch.exp(sinks - top))
        return (shares @ values.float()).flatten(1, 2).to(DTYPE)


def get_inputs():
    cache = [torch.randn(BATCH, GROUPS, KEYS, HEAD, dtype=DTYPE) for _ in range(2)]
    return [torch.randn(BATCH, HEADS, HEAD, dtype=DTYPE), *cache, torch.randint(1, KEYS + 1, (BATCH,))]
