"""A PyTorch module becomes a graph of ATen calls. Only `graph` is torch-free."""
