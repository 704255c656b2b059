"""A table that is built for the sizes of the inputs and kept in a buffer."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.zeros(1, 1), persistent=False)

    def forward(self, x):
        if self.places.shape[1] != x.shape[1]:
            self.places = (torch.arange(x.shape[1]) / x.shape[1])[None].to(x.dtype)
        return torch.tanh(x + self.places)


def get_inputs():
    return [torch.randn(5, 40)]
