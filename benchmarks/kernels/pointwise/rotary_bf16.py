import torch


class Model(torch.nn.Module):
    def forward(self, q, cos, sin):
        first, second = q.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def get_inputs():
    return [
        torch.randn(4, 32, 4096, 128).bfloat16(),
        torch.randn(4096, 64).bfloat16(),
        torch.randn(4096, 64).bfloat16(),
    ]
