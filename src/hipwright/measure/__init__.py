"""Is it fast? Cost model, static estimate, statistics (docs/toolchain.md, docs/search.md)."""
