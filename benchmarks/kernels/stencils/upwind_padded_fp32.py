import torch
from torch import nn


class Model(nn.Module):
    def forward(self, u, speed):
        padded = nn.functional.pad(u, (1, 1))
        back = u - padded[..., :-2]
        ahead = padded[..., 2:] - u
        return u - 0.1 * torch.where(speed > 0, speed * back, speed * ahead)


def get_inputs():
    return [torch.randn(2048, 32768), torch.randn(2048, 32768)]
