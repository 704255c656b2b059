"""Latents of 512 and rotary keys of 64 elements of 512 tokens, written to one row each of a cache of 4096 slots."""

import torch
from torch import nn

TOKENS, SLOTS, LATENT, ROTARY = 512, 4096, 512, 64
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, latent, rotary, cache, slots):
        cache[slots, : latent.shape[1]] = latent
        cache[slots, latent.shape[1] :] = rotary


def get_inputs():
    parts = [torch.randn(TOKENS, size, dtype=DTYPE) for size in (LATENT, ROTARY)]
    return [*parts, torch.randn(SLOTS, LATENT + ROTARY, dtype=DTYPE), torch.randperm(SLOTS)[:TOKENS]]
