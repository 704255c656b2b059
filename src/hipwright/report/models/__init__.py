"""Pages of whole models."""
