import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return x


def get_inputs():
    return [torch.zeros(3)]
