"""RNN-T joint network of 16 x 400 frames and 100 labels: width 640, tanh, 1025 outputs, log-softmax."""

import torch
from torch import nn

BATCH, FRAMES, LABELS, WIDTH, OUTPUTS = 16, 400, 100, 640, 1025
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.audio = nn.Linear(WIDTH, WIDTH, dtype=DTYPE)
        self.text = nn.Linear(WIDTH, WIDTH, bias=False, dtype=DTYPE)
        self.out = nn.Linear(WIDTH, OUTPUTS, dtype=DTYPE)

    def forward(self, audio, text):
        joint = torch.tanh(self.audio(audio)[:, :, None] + self.text(text)[:, None])
        return torch.log_softmax(self.out(joint), dim=-1)


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH, dtype=DTYPE), torch.randn(BATCH, LABELS, WIDTH, dtype=DTYPE)]
