import torch
from torch import nn

CLASSES = 1000


class Model(nn.Module):
    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target, label_smoothing=0.1)


def get_inputs():
    return [torch.randn(2048, CLASSES), torch.randint(0, CLASSES, (2048,))]
