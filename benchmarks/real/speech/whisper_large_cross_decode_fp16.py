"""Whisper large-v3 cross-attention of one decoded token, 40 beams, keys and values of 1500 frames: 20 heads of 64."""

import torch

BEAMS, FRAMES, HEADS, HEAD = 40, 1500, 20, 64
DTYPE = torch.float16


class Model(torch.nn.Module):
    def forward(self, q, keys, values):
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values)


def get_inputs():
    return [
        torch.randn(BEAMS, HEADS, 1, HEAD, dtype=DTYPE),
        torch.randn(BEAMS, HEADS, FRAMES, HEAD, dtype=DTYPE),
        torch.randn(BEAMS, HEADS, FRAMES, HEAD, dtype=DTYPE),
    ]
