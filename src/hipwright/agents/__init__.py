"""The cooperating roles: those that write with a language model, and those that need none (docs/agents.md)."""
