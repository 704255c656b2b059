"""The command line: a thin face over the other packages (README.md, docs/design.md)."""
