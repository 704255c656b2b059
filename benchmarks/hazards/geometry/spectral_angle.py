"""Mean spectral angle of images: arccosines of clamped cosines."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.acos(((x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1) + 1e-8)).clamp(-1, 1)).mean((1, 2))


def get_inputs():
    return [torch.rand(2, 5, 9, 11), torch.rand(2, 5, 9, 11)]
