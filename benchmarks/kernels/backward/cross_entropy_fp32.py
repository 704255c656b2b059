import torch

CLASSES = 32000


class Model(torch.nn.Module):
    def forward(self, logits, target):
        hot = torch.zeros_like(logits).scatter(1, target[:, None], 1.0)
        return (torch.softmax(logits, dim=-1) - hot) / logits.shape[0]


def get_inputs():
    return [torch.randn(8192, CLASSES), torch.randint(0, CLASSES, (8192,))]
