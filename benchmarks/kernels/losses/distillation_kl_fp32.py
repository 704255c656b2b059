import torch


class Model(torch.nn.Module):
    def forward(self, student, teacher):
        log_p = torch.log_softmax(student, dim=-1)
        log_q = torch.log_softmax(teacher, dim=-1)
        return (log_q.exp() * (log_q - log_p)).sum(dim=-1).mean()


def get_inputs():
    return [torch.randn(16384, 8192), torch.randn(16384, 8192)]
