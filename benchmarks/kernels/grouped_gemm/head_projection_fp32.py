import torch


class Model(torch.nn.Module):
    def forward(self, x, weight):
        return torch.einsum("bhi,hio->bho", x, weight)


def get_inputs():
    return [torch.randn(8192, 16, 64), torch.randn(16, 64, 64)]
