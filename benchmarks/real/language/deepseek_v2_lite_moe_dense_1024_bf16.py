"""DeepSeek-V2-Lite experts, each run on all 1024 tokens: 64 experts, top 6, width 2048, hidden 1408, softmax gate."""

import torch
from torch import nn

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 1024, 2048, 1408, 64, 6
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Parameter(torch.randn(WIDTH, EXPERTS) * WIDTH**-0.5)
        self.gate = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN, dtype=DTYPE) * WIDTH**-0.5)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN, dtype=DTYPE) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH, dtype=DTYPE) * HIDDEN**-0.5)

    def forward(self, x):
        scores = torch.softmax(x.float() @ self.router, dim=-1)
        values, chosen = torch.topk(scores, CHOSEN, dim=-1)
        share = torch.zeros_like(scores).scatter(1, chosen, values)
        inner = nn.functional.silu(torch.matmul(x, self.gate)) * torch.matmul(x, self.up)
        inner = inner * share.t()[:, :, None].to(x.dtype)
        return torch.bmm(inner, self.down).sum(dim=0)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH, dtype=DTYPE)]
