"""Sum of 8 experts' rows of width 2048 for each of 4096 tokens, gathered by place and weighed."""

import torch
from torch import nn

TOKENS, CHOSEN, WIDTH = 4096, 8, 2048
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, rows, places, weights):
        picked = rows[places].float()
        return (picked * weights.unsqueeze(-1)).sum(dim=1).to(DTYPE)


def get_inputs():
    rows = torch.randn(TOKENS * CHOSEN, WIDTH, dtype=DTYPE)
    places = torch.randint(0, TOKENS * CHOSEN, (TOKENS, CHOSEN))
    return [rows, places, torch.softmax(torch.randn(TOKENS, CHOSEN), dim=-1)]
