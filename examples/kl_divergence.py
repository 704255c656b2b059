"""Distillation: the KL divergence of a student's distribution from a teacher's, at a temperature."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        log_q = F.log_softmax(student / self.temperature, dim=-1)
        log_p = F.log_softmax(teacher / self.temperature, dim=-1)
        return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean() * self.temperature**2


def get_inputs():
    return [torch.randn(320, 500), torch.randn(320, 500)]


def get_init_inputs():
    return [3.0]
