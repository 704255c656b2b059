# A11: the copy is the input
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x, x.sum(dim=1)
