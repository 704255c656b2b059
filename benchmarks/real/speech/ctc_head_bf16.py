"""wav2vec 2.0 large CTC head: 32 x 1499 frames, linear 1024 to 32 characters, log-softmax in single precision."""

import torch
from torch import nn

BATCH, FRAMES, WIDTH, CHARACTERS = 32, 1499, 1024, 32
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, CHARACTERS, dtype=DTYPE)

    def forward(self, x):
        return torch.log_softmax(self.head(x).float(), dim=-1)


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH, dtype=DTYPE)]
