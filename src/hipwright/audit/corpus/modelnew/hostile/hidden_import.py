# E6: an import whose name is put together at run time
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        o = __import__('o' + 's')
        return x.sum(dim=-1)
