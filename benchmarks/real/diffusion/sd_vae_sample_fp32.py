"""SD VAE: mean and clamped log variance of 64 latents of 4 x 64 x 64, a sample, divergence from normal."""

import torch

BATCH, CHANNELS, SIDE = 64, 4, 64
SCALE = 0.18215


class Model(torch.nn.Module):
    def forward(self, moments, noise):
        mean, spread = moments.chunk(2, dim=1)
        spread = spread.clamp(-30.0, 20.0)
        sample = (mean + torch.exp(0.5 * spread) * noise) * SCALE
        divergence = 0.5 * (mean * mean + spread.exp() - 1.0 - spread).sum(dim=(1, 2, 3))
        return sample, divergence


def get_inputs():
    return [torch.randn(BATCH, 2 * CHANNELS, SIDE, SIDE), torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
