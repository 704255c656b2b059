"""Loss of 64 SDXL latents of 4 x 128 x 128 for v-prediction: noising by a table of 1000 steps, min-SNR weight of 5."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE, STEPS, LIMIT = 64, 4, 128, 1000, 5.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, STEPS) ** 2
        self.register_buffer("kept", torch.cumprod(1.0 - betas, dim=0))

    def forward(self, latent, noise, predicted, step):
        kept = self.kept[step]
        signal, spread = kept.sqrt()[:, None, None, None], (1.0 - kept).sqrt()[:, None, None, None]
        noisy = signal * latent + spread * noise
        target = signal * noise - spread * latent
        ratio = kept / (1.0 - kept)
        weight = torch.minimum(ratio, torch.full_like(ratio, LIMIT)) / (ratio + 1.0)
        return noisy, weight * (predicted - target).square().mean(dim=(1, 2, 3))


def get_inputs():
    return [
        torch.randn(BATCH, CHANNELS, SIDE, SIDE),
        torch.randn(BATCH, CHANNELS, SIDE, SIDE),
        torch.randn(BATCH, CHANNELS, SIDE, SIDE),
        torch.randint(0, STEPS, (BATCH,)),
    ]
