"""Training: cross entropy of 2048 tokens over Llama-3's vocabulary of 128256 and its gradient by the logits."""

import torch

TOKENS, VOCABULARY = 2048, 128256
DTYPE = torch.bfloat16


class Model(torch.nn.Module):
    def forward(self, logits, target):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            loss = torch.nn.functional.cross_entropy(logits.float(), target)
            (gradient,) = torch.autograd.grad(loss * TOKENS, [logits])
        return loss.detach(), gradient


def get_inputs():
    return [torch.randn(TOKENS, VOCABULARY, dtype=DTYPE), torch.randint(0, VOCABULARY, (TOKENS,))]
