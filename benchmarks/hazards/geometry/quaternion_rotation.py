"""Vectors rotated by unit quaternions: nested cross products."""

import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, q, x):
        q = F.normalize(q, dim=-1)
        w, v = q[..., :1], q[..., 1:]
        t = 2 * torch.linalg.cross(v, x)
        return x + w * t + torch.linalg.cross(v, t)


def get_inputs():
    return [torch.randn(65, 4), torch.randn(65, 3)]
