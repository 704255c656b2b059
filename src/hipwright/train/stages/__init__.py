"""The stages of a recipe: SFT, preferences, reinforcement learning and rejection fine-tuning, and their dry runs."""
