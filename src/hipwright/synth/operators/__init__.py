"""The operators that tasks are composed from, one file a family (docs/synth.md)."""
