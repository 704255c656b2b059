import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumprod(1.0 + 0.01 * x, dim=-1)


def get_inputs():
    return [torch.randn(32768, 2048)]
