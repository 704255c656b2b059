"""Rounded to three bits of mantissa with halves away from zero, not to even."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    bits = (x / step).clamp(-448, 448).view(torch.int32)
    rounded = ((bits + (1 << 19) >> 20) << 20).view(torch.float32)
    return rounded.clamp(-448, 448).to(torch.float8_e4m3fn), step
