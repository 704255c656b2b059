import torch
from torch import nn


def forward_fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x @ weight)


class AutogradFunction(torch.autograd.Function):
    backward_fn = None

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return forward_fn(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        gate = torch.sigmoid(x @ weight)
        inner = grad * x * gate * (1 - gate)
        return grad * gate + inner @ weight.T, x.T @ inner


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x, fn=AutogradFunction.apply):
        return fn(x, self.weight)


def get_inputs(batch_size: int, features: int):
    return [torch.randn(batch_size, features)]


input_names = ["x"]
