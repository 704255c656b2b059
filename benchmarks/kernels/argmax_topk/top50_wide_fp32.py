import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.topk(x, 50, dim=-1).values


def get_inputs():
    return [torch.randn(512, 131072)]
