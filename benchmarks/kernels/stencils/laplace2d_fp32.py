import torch


class Model(torch.nn.Module):
    def forward(self, u):
        inner = u[:, 1:-1, 1:-1]
        near = u[:, :-2, 1:-1] + u[:, 2:, 1:-1] + u[:, 1:-1, :-2] + u[:, 1:-1, 2:]
        return inner + 0.2 * (near - 4.0 * inner)


def get_inputs():
    return [torch.randn(16, 4096, 4096)]
