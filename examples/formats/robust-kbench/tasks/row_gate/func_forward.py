import torch
from torch import nn


def forward_fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x @ weight)


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)


def get_inputs(batch_size: int, features: int):
    return [torch.randn(batch_size, features)]


input_names = ["x"]
