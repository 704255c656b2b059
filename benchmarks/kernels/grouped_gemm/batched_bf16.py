import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(64, 1024, 512).bfloat16(), torch.randn(64, 512, 512).bfloat16()]
