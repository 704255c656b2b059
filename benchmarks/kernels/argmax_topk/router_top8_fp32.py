import torch


class Model(torch.nn.Module):
    def forward(self, logits):
        values, experts = torch.topk(logits, 8, dim=-1)
        return torch.softmax(values, dim=-1), experts


def get_inputs():
    return [torch.randn(524288, 128)]
