"""Linear and cross entropy over 128256 words in four chunks of 1024 tokens, from hidden states of 1024."""

import torch
import torch.nn.functional as F
from torch import nn

TOKENS, WIDTH, WORDS = 4096, 1024, 128256
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, hidden, weight, labels):
        total = torch.zeros((), device=hidden.device)
        for states, chosen in zip(hidden.chunk(4), labels.chunk(4), strict=True):
            total = total + F.cross_entropy(F.linear(states, weight).float(), chosen, reduction="sum")
        return total / hidden.shape[0]


def get_inputs():
    weight = torch.randn(WORDS, WIDTH, dtype=DTYPE) * 0.02
    return [torch.randn(TOKENS, WIDTH, dtype=DTYPE), weight, torch.randint(0, WORDS, (TOKENS,))]
