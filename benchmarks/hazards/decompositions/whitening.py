"""Whitening by the eigenvectors of a covariance: signs cancel."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        x = x - x.mean(0)
        cov = x.t() @ x / (x.shape[0] - 1) + 0.1 * torch.eye(x.shape[1])
        s, v = torch.linalg.eigh(cov)
        return x @ (v * s.rsqrt()) @ v.t()


def get_inputs():
    return [torch.randn(40, 6)]
