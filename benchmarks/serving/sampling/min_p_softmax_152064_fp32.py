"""Temperature, softmax and min-p of a vocabulary of 152064 for 64 sequences, normalised again."""

import torch
from torch import nn

BATCH, WORDS = 64, 152064


class Model(nn.Module):
    def forward(self, scores, temperature, least):
        shares = torch.softmax(scores / temperature[:, None], dim=-1)
        kept = torch.where(shares >= least[:, None] * shares.amax(dim=-1, keepdim=True), shares, 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(BATCH, WORDS) * 4, torch.rand(BATCH) + 0.5, torch.rand(BATCH) * 0.2]
