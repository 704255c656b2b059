import torch


class Model(torch.nn.Module):
    def forward(self, grad, x):
        return torch.ops.aten.gelu_backward(grad, x)


def get_inputs():
    return [torch.randn(16384, 16384).bfloat16(), torch.randn(16384, 16384).bfloat16()]
