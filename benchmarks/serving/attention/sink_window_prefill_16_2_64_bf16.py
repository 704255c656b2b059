"""1024 tokens attend to the last 128 keys, with a sink a head: 16 query heads on 2 of 64."""

import torch
from torch import nn

TOKENS, HEADS, GROUPS, HEAD, WINDOW = 1024, 16, 2, 64, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(HEADS, dtype=DTYPE))

    def forward(self, q, keys, values):
        keys, values = (x.repeat_interleave(HEADS // GROUPS, dim=0).float() for x in (keys, values))
        scores = q.float() @ keys.transpose(-1, -2) * HEAD**-0.5
        place = torch.arange(scores.shape[-1], device=q.device)
        ago = place[:, None] - place[None, :]
        scores = scores.masked_fill((ago < 0) | (ago >= WINDOW), float("-inf"))
        sinks = self.sinks.float().view(HEADS, 1, 1).expand(-1, scores.shape[1], 1)
        shares = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
        return (shares @ values).to(DTYPE)


def get_inputs():
    cache = [torch.randn(GROUPS, TOKENS, HEAD, dtype=DTYPE) for _ in range(2)]
    return [torch.randn(HEADS, TOKENS, HEAD, dtype=DTYPE), *cache]
