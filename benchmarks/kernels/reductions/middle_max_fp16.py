import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.amax(x, dim=1)


def get_inputs():
    return [torch.randn(256, 512, 1024).half()]
