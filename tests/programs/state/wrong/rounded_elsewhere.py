"""All of the cache passes through half precision."""

HIP = r''''''


def forward(self, cache, keys, slots):
    made = cache.half().float().index_copy(0, slots, keys)
    cache.copy_(made)
    return keys.sum(-1)
