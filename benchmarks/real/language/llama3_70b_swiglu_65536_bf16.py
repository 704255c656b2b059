"""Llama-3 70B SwiGLU product of 65536 tokens: two tensors of 65536 x 28672."""

import torch

TOKENS, HIDDEN = 65536, 28672
DTYPE = torch.bfloat16


class Model(torch.nn.Module):
    def forward(self, gate, up):
        return torch.nn.functional.silu(gate) * up


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN, dtype=DTYPE), torch.randn(TOKENS, HIDDEN, dtype=DTYPE)]
