import torch


class Model(torch.nn.Module):
    def forward(self, x, mask):
        return torch.cumsum(x * mask, dim=-1)


def get_inputs():
    return [torch.randn(64, 2048), torch.rand(64, 2048).round()]
