"""Mixture-of-experts gates: softmax over experts, the k largest kept and renormalised."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, k: int):
        super().__init__()
        self.k = k

    def forward(self, logits):
        weights, experts = torch.topk(torch.softmax(logits, dim=-1), self.k, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), experts


def get_inputs():
    return [torch.randn(600, 32)]


def get_init_inputs():
    return [2]
