"""Keys and values of 512 tokens written to a paged cache by slot mapping: 256 pages of 16 slots, 8 heads of 128."""

import torch
from torch import nn

TOKENS, PAGES, PAGE, HEADS, HEAD = 512, 256, 16, 8, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, keys, values, key_cache, value_cache, slots):
        page, place = slots // key_cache.shape[1], slots % key_cache.shape[1]
        key_cache[page, place] = keys
        value_cache[page, place] = values


def get_inputs():
    tokens = [torch.randn(TOKENS, HEADS, HEAD, dtype=DTYPE) for _ in range(2)]
    caches = [torch.randn(PAGES, PAGE, HEADS, HEAD, dtype=DTYPE) for _ in range(2)]
    return [*tokens, *caches, torch.randperm(PAGES * PAGE)[:TOKENS]]
