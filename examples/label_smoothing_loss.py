"""Cross entropy with label smoothing, written out: one value a row."""

import torch
from torch import nn

CLASSES = 640


class Model(nn.Module):
    def __init__(self, smoothing: float):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, target):
        logp = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
        picked = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        uniform = -logp.mean(dim=-1)
        return (1.0 - self.smoothing) * picked + self.smoothing * uniform


def get_inputs():
    return [torch.randn(384, CLASSES), torch.randint(0, CLASSES, (384,))]


def get_init_inputs():
    return [0.1]
