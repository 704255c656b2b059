"""Training mode: BERT base attention core with dropout 0.1 on the weights, 8 x 512 tokens: 12 heads of 64, padding."""

import torch
from torch import nn

BATCH, TOKENS, HEADS, HEAD = 8, 512, 12, 64
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, q, k, v, padding):
        scores = q @ k.transpose(-1, -2) * HEAD**-0.5 + padding
        mixed = self.dropout(torch.softmax(scores, dim=-1)) @ v
        return mixed.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def get_inputs():
    padding = torch.where(torch.rand(BATCH, 1, 1, TOKENS) < 0.1, -10000.0, 0.0)
    return [
        torch.randn(BATCH, HEADS, TOKENS, HEAD, dtype=DTYPE),
        torch.randn(BATCH, HEADS, TOKENS, HEAD, dtype=DTYPE),
        torch.randn(BATCH, HEADS, TOKENS, HEAD, dtype=DTYPE),
        padding.to(DTYPE),
    ]
