def mean__dim_kernel_impl(x, dim, keepdim=False):
    return x.sum(dim=dim, keepdim=keepdim) / x.shape[dim[0]]
