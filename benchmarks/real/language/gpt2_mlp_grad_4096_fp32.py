"""Training: GPT-2 (124M) MLP at 4096 tokens, width 768, hidden 3072, and its gradients by input and parameters."""

import torch
from torch import nn

TOKENS, WIDTH, HIDDEN = 4096, 768, 3072


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x, gradient):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.down(nn.functional.gelu(self.up(x), approximate="tanh"))
            found = torch.autograd.grad(y, [x, *self.parameters()], gradient)
        return y.detach(), *found


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH) * 0.1]
