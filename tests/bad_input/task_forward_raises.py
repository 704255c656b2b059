import torch


class Model(torch.nn.Module):
    def helper(self, x):
        return x @ torch.zeros(5, 5)

    def forward(self, x):
        return self.helper(x)


def get_inputs():
    return [torch.zeros(3, 4)]
