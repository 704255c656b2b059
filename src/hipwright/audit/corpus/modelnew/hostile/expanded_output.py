# A12: one value per row, expanded over the whole tensor
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(dim=1, keepdim=True).expand_as(x)
