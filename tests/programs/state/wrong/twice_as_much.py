"""A token more than there are: the first elements behind the last token go to a slot too."""

HIP = r''''''


def forward(self, cache, keys, slots):
    made = torch.cat([keys, keys[:1]])
    more = torch.cat([slots, (slots[:1] + 1) % cache.shape[0]])
    cache.index_copy_(0, more.flip(0), made.flip(0))
    return keys.sum(-1)
