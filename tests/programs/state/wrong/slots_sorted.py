"""The slots are taken in order, the keys as they are."""

HIP = r''''''


def forward(self, cache, keys, slots):
    cache.index_copy_(0, slots.sort().values, keys)
    return keys.sum(-1)
