"""SwiGLU's product in bfloat16: 4096 tokens, 11008 gates."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, gate, up):
        return nn.functional.silu(gate) * up


def get_inputs():
    return [torch.randn(4096, 11008).bfloat16(), torch.randn(4096, 11008).bfloat16()]


def get_init_inputs():
    return []
