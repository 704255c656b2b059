"""The new cache is made as a value and copied over the old one: slow, and right."""

HIP = r''''''


def forward(self, cache, keys, slots):
    made = cache.index_copy(0, slots, keys)
    cache.copy_(made)
    return keys.sum(-1)
