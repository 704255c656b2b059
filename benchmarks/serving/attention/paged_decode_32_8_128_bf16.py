"""One token of 64 sequences attends to up to 1024 keys in pages of 16 by a block table, 32 query heads on 8 of 128."""

import torch
from torch import nn

PAGE, HEADS, GROUPS, HEAD = 16, 32, 8, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, q, key_cache, value_cache, table, lengths):
        q = q.unflatten(1, (GROUPS, HEADS // GROUPS)).float()
        keys = key_cache[table].flatten(1, 2).transpose(1, 2).float()
        values = value_cache[table].flatten(1, 2).transpose(1, 2).float()
        scores = q @ keys.transpose(-1, -2) * HEAD**-0.5
        place = torch.arange(keys.shape[2], device=q.device)
        scores = scores.masked_fill(place >= lengths[:, None, None, None], float("-inf"))
        return (torch.softmax(scores, dim=-1) @ values).flatten(1, 2).to(DTYPE)


def make(sequences, keys):
    blocks = keys // PAGE
    pages = sequences * blocks
    return [
        torch.randn(sequences, HEADS, HEAD, dtype=DTYPE),
        torch.randn(pages, PAGE, GROUPS, HEAD, dtype=DTYPE),
        torch.randn(pages, PAGE, GROUPS, HEAD, dtype=DTYPE),
        torch.randperm(pages).view(sequences, blocks),
        torch.randint(1, keys + 1, (sequences,)),
    ]


def get_inputs():
    return make(64, 1024)


def get_input_groups():
    return [make(3, 256), make(5, 160)]
