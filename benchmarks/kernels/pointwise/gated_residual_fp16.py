import torch


class Model(torch.nn.Module):
    def forward(self, x, gate, skip):
        return torch.clamp(x * torch.sigmoid(gate) + skip, -4.0, 4.0)


def get_inputs():
    return [torch.randn(16, 2048, 4096).half(), torch.randn(16, 2048, 4096).half(), torch.randn(16, 2048, 4096).half()]
