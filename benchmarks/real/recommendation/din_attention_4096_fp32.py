"""DIN attention over 100 items of history at batch 4096: width 64, MLP of 80 and 40 over (h, q, h - q, h q), masked."""

import torch
from torch import nn

BATCH, HISTORY, WIDTH, HIDDEN = 4096, 100, 64, (80, 40)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4 * WIDTH, HIDDEN[0]), nn.Linear(HIDDEN[0], HIDDEN[1])
        self.third = nn.Linear(HIDDEN[1], 1)

    def forward(self, query, history, length):
        q = query[:, None].expand_as(history)
        x = torch.cat((history, q, history - q, history * q), dim=-1)
        scores = self.third(torch.sigmoid(self.second(torch.sigmoid(self.first(x)))))[..., 0]
        seen = torch.arange(history.shape[1], device=history.device) < length[:, None]
        weights = torch.where(seen, scores, 0.0)
        return torch.bmm(weights[:, None], history)[:, 0]


def get_inputs():
    return [
        torch.randn(BATCH, WIDTH),
        torch.randn(BATCH, HISTORY, WIDTH),
        torch.randint(1, HISTORY + 1, (BATCH,)),
    ]
