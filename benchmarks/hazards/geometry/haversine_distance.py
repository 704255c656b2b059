"""Great-circle distances by the haversine: an arcsine near its ends."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        la, lb = a[:, 0], b[:, 0]
        h = ((lb - la) / 2).sin().pow(2) + la.cos() * lb.cos() * ((b[:, 1] - a[:, 1]) / 2).sin().pow(2)
        return 2 * torch.asin(h.clamp(0, 1).sqrt())


def get_inputs():
    return [torch.randn(64, 2), torch.randn(64, 2)]
