"""The algorithm of train/rl in TRL's GRPO trainer, for models that need several GPUs (docs/recipes.md)."""
