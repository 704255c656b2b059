"""The last token is not written."""

HIP = r""""""


def forward(self, x, y, scales, cache, other, slots):
    keys = (x.float() / scales[0]).clamp(-448, 448).to(torch.float8_e4m3fn)
    values = (y.float() / scales[1]).clamp(-448, 448).to(torch.float8_e4m3fn)
    last = x.shape[0] - 1
    cache.index_put_((slots[:last],), keys[:last])
    other.index_put_((slots[:last],), values[:last])
    return x.amax(-1)
