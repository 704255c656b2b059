"""As the task does."""

HIP = r""""""


def forward(self, x, y, scales, cache, other, slots):
    keys = (x.float() / scales[0]).clamp(-448, 448).to(torch.float8_e4m3fn)
    values = (y.float() / scales[1]).clamp(-448, 448).to(torch.float8_e4m3fn)
    cache.index_put_((slots,), keys)
    other.index_put_((slots,), values)
    return x.amax(-1)
