"""Causal attention probabilities: keys after the query are masked, then softmax."""

import torch
from torch import nn

TOKENS = 144


class Model(nn.Module):
    def __init__(self, tokens: int, scale: float):
        super().__init__()
        self.register_buffer("allowed", torch.tril(torch.ones(tokens, tokens, dtype=torch.bool)))
        self.scale = scale

    def forward(self, scores):
        masked = torch.where(self.allowed, scores * self.scale, torch.finfo(scores.dtype).min)
        return torch.softmax(masked, dim=-1)


def get_inputs():
    return [torch.randn(3, 8, TOKENS, TOKENS)]


def get_init_inputs():
    return [TOKENS, 0.125]
