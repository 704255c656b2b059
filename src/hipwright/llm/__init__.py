"""Language models: what a call is, whom it goes to, what it may cost, and what its answer holds (docs/llm.md)."""
