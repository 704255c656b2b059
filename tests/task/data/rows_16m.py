import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[1:])


def get_inputs():
    return [torch.randn(4096, 4096)]
