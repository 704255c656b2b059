"""The forward pass of a linear-chain CRF: six steps of logsumexp."""

import torch


class Model(torch.nn.Module):
    def forward(self, e, t):
        alpha = e[:, 0]
        for i in range(1, 6):
            alpha = torch.logsumexp(alpha[:, :, None] + t[None], 1) + e[:, i]
        return alpha.logsumexp(-1)


def get_inputs():
    return [torch.randn(5, 6, 9), torch.randn(9, 9)]
