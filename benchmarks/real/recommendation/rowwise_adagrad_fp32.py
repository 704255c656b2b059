"""Row-wise AdaGrad step of a dense gradient on 500000 rows of width 128: rate 0.02, one moment a row."""

import torch

ROWS, WIDTH, RATE, EPSILON = 500000, 128, 0.02, 1e-8


class Model(torch.nn.Module):
    def forward(self, table, gradient, moment):
        moment = moment + gradient.square().mean(dim=1)
        return table - RATE * gradient / (moment.sqrt() + EPSILON)[:, None], moment


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH), torch.rand(ROWS)]
