"""Training: two-tower in-batch softmax with log-frequency correction, 16384 pairs of width 128, temperature 0.05."""

import torch

BATCH, WIDTH, TEMPERATURE = 16384, 128, 0.05


class Model(torch.nn.Module):
    def forward(self, user, item, frequency):
        with torch.enable_grad():
            user, item = user.detach().requires_grad_(), item.detach().requires_grad_()
            u, v = (torch.nn.functional.normalize(one, dim=-1) for one in (user, item))
            logits = u @ v.t() / TEMPERATURE - torch.log(frequency)
            target = torch.arange(user.shape[0], device=user.device)
            losses = torch.nn.functional.cross_entropy(logits, target, reduction="none")
            gradients = torch.autograd.grad(losses.sum(), [user, item])
        return losses.detach(), *gradients


def get_inputs():
    return [torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH), torch.rand(BATCH) * 0.01 + 1e-4]
