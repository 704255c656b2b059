"""Spectral normalisation by three steps of power iteration."""

import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, w, u):
        for _ in range(3):
            v = F.normalize(w.t() @ u, dim=0)
            u = F.normalize(w @ v, dim=0)
        return w / (u @ (w @ v))


def get_inputs():
    return [torch.randn(24, 33), torch.randn(24)]
