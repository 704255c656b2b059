"""Language models: specs, calls with retries, budget and log, and reading of answers (docs/llm.md)."""
