"""AMD assembly for the simulator: what clang writes, as micro-ops; the executor's build (docs/sim-target.md)."""
