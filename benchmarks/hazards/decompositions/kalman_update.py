"""One update of a Kalman filter: a gain by an inverse."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, p, z):
        s = p + 0.5 * torch.eye(p.shape[-1])
        k = p @ torch.linalg.inv(s)
        x = x + (k @ (z - x).unsqueeze(-1)).squeeze(-1)
        return x, p - k @ p


def get_inputs():
    return [torch.randn(7, 4), torch.randn(7, 4, 4) @ torch.randn(7, 4, 4), torch.randn(7, 4)]
