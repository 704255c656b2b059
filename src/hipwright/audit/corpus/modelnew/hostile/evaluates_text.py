# E3: code in a string
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return eval('x.sum(dim=-1)')
