"""Direct preference optimisation loss of 4 pairs of 512 tokens over Llama-2's vocabulary of 32000, beta 0.1."""

import torch

PAIRS, TOKENS, VOCABULARY = 4, 512, 32000
BETA = 0.1
DTYPE = torch.float16


class Model(torch.nn.Module):
    def likelihood(self, logits, labels, mask):
        chances = torch.log_softmax(logits.float(), dim=-1)
        return (chances.gather(-1, labels[..., None])[..., 0] * mask).sum(dim=-1)

    def forward(self, policy, reference, labels, mask):
        ratio = self.likelihood(policy, labels, mask) - self.likelihood(reference, labels, mask)
        chosen, rejected = ratio.chunk(2, dim=0)
        margin = BETA * (chosen - rejected)
        return -torch.nn.functional.logsigmoid(margin), margin


def get_inputs():
    return [
        torch.randn(2 * PAIRS, TOKENS, VOCABULARY, dtype=DTYPE),
        torch.randn(2 * PAIRS, TOKENS, VOCABULARY, dtype=DTYPE),
        torch.randint(0, VOCABULARY, (2 * PAIRS, TOKENS)),
        (torch.rand(2 * PAIRS, TOKENS) < 0.5).float(),
    ]
