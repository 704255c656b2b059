import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.softmax((q @ k.transpose(-1, -2)).float() * 0.125, dim=-1)
        return scores.half() @ v


def get_inputs():
    return [torch.randn(8, 12, 512, 64).half(), torch.randn(8, 12, 512, 64).half(), torch.randn(8, 12, 512, 64).half()]
