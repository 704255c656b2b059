import torch
import torch.nn as nn


class Model(nn.Module):
    """Dtypes named in the code: float64 must see through them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8).to(torch.bfloat16))

    def forward(self, x):
        y = x.half().float().to(torch.float32) @ self.weight.float()
        z = torch.zeros(8, dtype=torch.float32) + torch.tensor([0.1] * 8, dtype=torch.float32)
        scores = torch.softmax(y + z, dim=-1, dtype=torch.float32).to(torch.bfloat16)
        return torch.nn.functional.layer_norm(scores, (8,)) + torch.full((8,), 0.3)


def get_inputs():
    return [torch.randn(4, 8)]
