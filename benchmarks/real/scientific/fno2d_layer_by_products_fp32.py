"""2-D FNO layer with its Fourier transforms as products, 16 fields of 64 channels on 128 x 128, 12 modes."""

import math

import torch
from torch import nn

BATCH, CHANNELS, SIDE, MODES = 16, 64, 128, 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        place = torch.arange(SIDE).float()[:, None]
        rows = torch.cat((torch.arange(MODES), torch.arange(-MODES, 0))).float()
        across, down = (2.0 * math.pi / SIDE * place * modes for modes in (torch.arange(MODES).float(), rows))
        for name, angles in (("across", across), ("down", down)):
            self.register_buffer(f"{name}_cos", angles.cos())
            self.register_buffer(f"{name}_sin", angles.sin())
        shape = (CHANNELS, CHANNELS, 2 * MODES, MODES)
        self.real, self.imaginary = nn.Parameter(torch.randn(shape) / 64), nn.Parameter(torch.randn(shape) / 64)
        self.bypass = nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, x):
        re, im = x @ self.across_cos, -(x @ self.across_sin)
        re, im = (
            torch.einsum("bchm,hr->bcrm", re, self.down_cos) + torch.einsum("bchm,hr->bcrm", im, self.down_sin),
            torch.einsum("bchm,hr->bcrm", im, self.down_cos) - torch.einsum("bchm,hr->bcrm", re, self.down_sin),
        )
        re, im = (
            torch.einsum("birm,iorm->borm", re, self.real) - torch.einsum("birm,iorm->borm", im, self.imaginary),
            torch.einsum("birm,iorm->borm", re, self.imaginary) + torch.einsum("birm,iorm->borm", im, self.real),
        )
        re, im = (
            torch.einsum("borm,hr->bohm", re, self.down_cos) - torch.einsum("borm,hr->bohm", im, self.down_sin),
            torch.einsum("borm,hr->bohm", im, self.down_cos) + torch.einsum("borm,hr->bohm", re, self.down_sin),
        )
        waves = re @ self.across_cos.t() - im @ self.across_sin.t()
        return nn.functional.gelu(2.0 / SIDE**2 * waves + self.bypass(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
