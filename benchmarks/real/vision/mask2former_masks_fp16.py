"""Mask2Former mask prediction, 8 images of 1024: 100 queries and pixel embeddings of 256 channels at 256 x 256."""

import torch

BATCH, QUERIES, CHANNELS, SIDE = 8, 100, 256, 256
DTYPE = torch.float16


class Model(torch.nn.Module):
    def forward(self, queries, pixels):
        return torch.sigmoid(torch.einsum("bqc,bchw->bqhw", queries, pixels) * CHANNELS**-0.5)


def get_inputs():
    return [
        torch.randn(BATCH, QUERIES, CHANNELS, dtype=DTYPE),
        torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE),
    ]
