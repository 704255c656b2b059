"""Reinforcement learning on real builds, verdicts and timings (docs/rl.md)."""
