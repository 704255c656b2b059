"""The library writes the slots, as a statement of the plan."""

HIP = r''''''


def forward(self, cache, keys, slots):
    cache.index_copy_(0, slots, keys)
    return keys.sum(-1)
