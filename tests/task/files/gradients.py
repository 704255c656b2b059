import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8, bias=False)

    def forward(self, x, gradient):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.down(torch.tanh(self.up(x)))
            return torch.autograd.grad(y, [x, *self.parameters()], gradient)


def get_inputs():
    return [torch.randn(32, 8), torch.randn(32, 8)]
