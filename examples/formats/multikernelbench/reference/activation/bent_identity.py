import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (torch.sqrt(x * x + 1) - 1) / 2 + x


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
