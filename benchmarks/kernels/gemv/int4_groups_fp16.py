import torch

GROUP = 128


class Model(torch.nn.Module):
    def forward(self, packed, scale, x):
        low = (packed & 15).to(torch.float16) - 8.0
        high = (packed >> 4).to(torch.float16) - 8.0
        weight = torch.stack([low, high], dim=-1).reshape(packed.shape[0], -1, GROUP)
        weight = weight * scale[:, :, None]
        return weight.reshape(packed.shape[0], -1) @ x


def get_inputs():
    return [
        torch.randint(0, 256, (16384, 8192), dtype=torch.uint8),
        torch.rand(16384, 16384 // GROUP).half() * 0.05,
        torch.randn(16384).half() * 0.1,
    ]


def get_input_groups():
    return [
        [
            torch.randint(0, 256, (257, 192), dtype=torch.uint8),
            torch.rand(257, 3).half() * 0.05,
            torch.randn(384).half() * 0.1,
        ]
    ]
