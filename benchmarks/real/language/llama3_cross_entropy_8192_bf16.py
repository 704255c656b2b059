"""Cross entropy of 8192 tokens over Llama-3's vocabulary of 128256, with the loss of each token and their mean."""

import torch

TOKENS, VOCABULARY = 8192, 128256
DTYPE = torch.bfloat16


class Model(torch.nn.Module):
    def forward(self, logits, target):
        losses = torch.nn.functional.cross_entropy(logits.float(), target, reduction="none")
        return losses, losses.mean()


def get_inputs():
    return [torch.randn(TOKENS, VOCABULARY, dtype=DTYPE), torch.randint(0, VOCABULARY, (TOKENS,))]
