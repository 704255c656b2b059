import torch


class Model(torch.nn.Module):
    def forward(self, weight, x):
        return weight @ x


def get_inputs():
    return [torch.randn(28672, 8192).bfloat16(), torch.randn(8192).bfloat16()]
