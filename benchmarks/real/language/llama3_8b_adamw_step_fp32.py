"""AdamW step of a Llama-3 8B attention matrix, 4096 x 4096: rate 3e-4, betas 0.9 and 0.95, decay 0.1, step 1000."""

import torch

ROWS, COLUMNS = 4096, 4096
RATE, BETA1, BETA2, EPSILON, DECAY, STEP = 3e-4, 0.9, 0.95, 1e-8, 0.1, 1000


class Model(torch.nn.Module):
    def forward(self, parameter, gradient, mean, square):
        mean = torch.lerp(mean, gradient, 1.0 - BETA1)
        square = square * BETA2 + gradient * gradient * (1.0 - BETA2)
        scale = (square / (1.0 - BETA2**STEP)).sqrt() + EPSILON
        update = mean / (1.0 - BETA1**STEP) / scale
        return parameter * (1.0 - RATE * DECAY) - RATE * update, mean, square


def get_inputs():
    return [
        torch.randn(ROWS, COLUMNS) * 0.02,
        torch.randn(ROWS, COLUMNS),
        torch.randn(ROWS, COLUMNS) * 0.1,
        torch.rand(ROWS, COLUMNS) + 0.01,
    ]
