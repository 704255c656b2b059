import torch


class Model(torch.nn.Module):
    def forward(self, now, before):
        left = torch.roll(now, 1, dims=-1)
        right = torch.roll(now, -1, dims=-1)
        return 2.0 * now - before + 0.3 * (left + right - 2.0 * now)


def get_inputs():
    return [torch.randn(4, 65536), torch.randn(4, 65536)]
