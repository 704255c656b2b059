"""What calls to language models cost, and the limits on it (docs/llm-budget.md)."""
