"""No least step: rows of zeros are divided by 0."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True) / 448.0
    return (x / step).clamp(-448, 448).to(torch.float8_e4m3fn), step
