"""The archive with many events: how long it takes to open, list, resume and find similar kernels (docs/archive.md)."""
