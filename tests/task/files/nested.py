import torch
import torch.nn as nn


class Model(nn.Module):
    """Nested inputs and outputs of many types."""

    def forward(self, pair, flag, n, scale, index, half, empty):
        a, (b, mask) = pair
        best = torch.max(a, dim=1)
        picked = torch.where(mask, b[index], torch.zeros(())) if flag else b
        return {"sum": (a + b) * scale, "best": best, "same": a, "half": half * 2, "empty": empty}, [
            n + 1,
            True,
            picked,
        ]


def get_inputs():
    a = torch.randn(5, 7)
    b = torch.randn(5, 7)
    index = torch.randint(0, 5, (5,))
    return [(a, (b, b > 0)), True, 3, 0.5, index, torch.randn(4).half(), torch.empty(0, 3)]
