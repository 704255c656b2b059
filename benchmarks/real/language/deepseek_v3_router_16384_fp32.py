"""DeepSeek-V3 router at 16384 tokens: 256 experts in 8 groups, top 8, scaled by 2.5."""

import torch
from torch import nn

TOKENS, EXPERTS, GROUPS, KEPT, CHOSEN = 16384, 256, 8, 4, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(EXPERTS) * 0.05)

    def forward(self, logits):
        scores = torch.sigmoid(logits)
        biased = scores + self.bias
        grouped = biased.view(-1, GROUPS, EXPERTS // GROUPS)
        of_group = grouped.topk(2, dim=-1).values.sum(dim=-1)
        kept = of_group.topk(KEPT, dim=-1).indices
        mask = torch.zeros_like(of_group).scatter(1, kept, 1.0)
        allowed = mask[:, :, None].expand(-1, -1, EXPERTS // GROUPS).reshape(-1, EXPERTS)
        chosen = biased.masked_fill(allowed == 0, float("-inf")).topk(CHOSEN, dim=-1).indices
        weights = scores.gather(1, chosen)
        return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * 2.5, chosen


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS)]
