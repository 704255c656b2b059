# wrong: it is not Python
class ModelNew(nn.Module:
    pass
