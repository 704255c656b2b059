"""Hardware counters of one launch under ncu or rocprofv3, and what limits the kernel (docs/profile.md)."""
