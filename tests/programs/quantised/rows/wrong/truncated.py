"""Cut off to three bits of mantissa, not rounded to nearest even."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    v = (x / step).clamp(-448, 448)
    m = ((v.view(torch.int32) >> 20) << 20).view(torch.float32)
    return m.to(torch.float8_e4m3fn), step
