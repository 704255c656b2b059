"""The cooperating roles, by the engine and by language models (docs/agents.md)."""
