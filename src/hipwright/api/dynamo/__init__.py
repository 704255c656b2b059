"""`torch.compile(model, backend="hipwright")` (docs/torch-compile.md)."""
