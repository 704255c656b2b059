"""Five Sinkhorn steps in the logarithm: rows and columns in turn."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        log = x
        for _ in range(5):
            log = log - log.logsumexp(-1, keepdim=True)
            log = log - log.logsumexp(-2, keepdim=True)
        return log.exp()


def get_inputs():
    return [torch.randn(4, 17, 17)]
