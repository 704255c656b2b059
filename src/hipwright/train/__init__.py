"""Learning to write HIP: rewards, environment, SFT, RL, recipes, the miniature (docs/training.md)."""
