"""Lovasz hinge (Berman et al. 2018): a sort and differences of quotients."""

import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x, t):
        e = 1 - x * (2 * t - 1)
        s, order = e.sort(descending=True)
        g = t[order]
        inter = g.sum() - g.cumsum(0)
        union = g.sum() + (1 - g).cumsum(0)
        j = 1 - inter / union
        j = torch.cat([j[:1], j[1:] - j[:-1]])
        return (F.relu(s) * j).sum()


def get_inputs():
    return [torch.randn(65), torch.randint(0, 2, (65,)).float()]
