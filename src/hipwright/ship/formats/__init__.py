"""The formats of `hipwright export`, one module and one line of `registry.REGISTERED` each (docs/ship.md)."""
