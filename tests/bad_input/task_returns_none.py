import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return None


def get_inputs():
    return [torch.zeros(3)]
