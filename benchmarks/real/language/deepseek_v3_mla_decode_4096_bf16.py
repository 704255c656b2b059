"""DeepSeek-V3 latent attention of one decoded token: batch 64, cache of 4096 x (512 + 64), 128 heads, absorbed."""

import torch

BATCH, CACHE, HEADS, LATENT, ROTARY = 64, 4096, 128, 512, 64
SCALE = 192**-0.5
DTYPE = torch.bfloat16


class Model(torch.nn.Module):
    def forward(self, q, cache):
        scores = torch.bmm(q, cache.transpose(1, 2)).float() * SCALE
        weights = torch.softmax(scores, dim=-1).to(q.dtype)
        return torch.bmm(weights, cache[:, :, :LATENT])


def get_inputs():
    return [
        torch.randn(BATCH, HEADS, LATENT + ROTARY, dtype=DTYPE),
        torch.randn(BATCH, CACHE, LATENT + ROTARY, dtype=DTYPE),
    ]
