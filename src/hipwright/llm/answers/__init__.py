"""Answers of language models, read and repaired (docs/answers.md)."""
