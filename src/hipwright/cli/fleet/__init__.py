"""`hipwright fleet`: many GPUs of many machines (docs/fleet.md)."""
