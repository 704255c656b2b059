"""The slots are right, and all others become zero."""

HIP = r''''''


def forward(self, cache, keys, slots):
    made = torch.zeros_like(cache).index_copy(0, slots, keys)
    cache.copy_(made)
    return keys.sum(-1)
