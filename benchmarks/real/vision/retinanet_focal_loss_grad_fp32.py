"""Training: RetinaNet focal loss (alpha 0.25, gamma 2) of 4 x 76725 anchors and 80 classes, and its gradient."""

import torch

BATCH, ANCHORS, CLASSES = 4, 76725, 80
ALPHA, GAMMA = 0.25, 2.0


class Model(torch.nn.Module):
    def forward(self, logits, target):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            chance = torch.sigmoid(logits)
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
            right = chance * target + (1.0 - chance) * (1.0 - target)
            weight = ALPHA * target + (1.0 - ALPHA) * (1.0 - target)
            losses = (weight * (1.0 - right) ** GAMMA * entropy).sum(dim=(1, 2))
            (gradient,) = torch.autograd.grad(losses.sum(), [logits])
        return losses.detach(), gradient


def get_inputs():
    return [torch.randn(BATCH, ANCHORS, CLASSES), (torch.rand(BATCH, ANCHORS, CLASSES) < 0.01).float()]
