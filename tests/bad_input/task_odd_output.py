import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x, {1, 2}


def get_inputs():
    return [torch.zeros(3)]
