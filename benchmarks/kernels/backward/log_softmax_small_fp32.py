import torch


class Model(torch.nn.Module):
    def forward(self, grad, y):
        return torch.ops.aten._log_softmax_backward_data(grad, y, -1, torch.float32)


def get_inputs():
    return [torch.randn(256, 1000), torch.log_softmax(torch.randn(256, 1000), dim=-1)]
