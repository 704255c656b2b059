# E8: prints without end
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            print('x' * 100000)
