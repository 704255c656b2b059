"""Graph rewrites before lowering."""
