"""Speculative decoding: which of 5 drafted tokens of 64 sequences are accepted, and the shares of the next word."""

import torch
from torch import nn

BATCH, DRAFTED, WORDS = 64, 5, 32000


class Model(nn.Module):
    def forward(self, tokens, drafts, targets, uniform):
        at = tokens.unsqueeze(-1)
        asked = uniform * drafts.gather(-1, at).squeeze(-1)
        accepted = (asked < targets[:, :-1].gather(-1, at).squeeze(-1)).long()
        count = accepted.cumprod(dim=-1).sum(dim=-1)
        row = count[:, None, None].expand(-1, 1, drafts.shape[-1])
        target = targets.gather(1, row).squeeze(1)
        draft = drafts.gather(1, row.clamp(max=drafts.shape[1] - 1)).squeeze(1)
        left = (target - draft * (count < drafts.shape[1])[:, None]).clamp(min=0.0)
        return count, left / left.sum(dim=-1, keepdim=True).clamp(min=1e-10)


def get_inputs():
    drafts = torch.softmax(torch.randn(BATCH, DRAFTED, WORDS) * 2, dim=-1)
    targets = torch.softmax(torch.randn(BATCH, DRAFTED + 1, WORDS) * 2, dim=-1)
    return [torch.randint(0, WORDS, (BATCH, DRAFTED)), drafts, targets, torch.rand(BATCH, DRAFTED)]
