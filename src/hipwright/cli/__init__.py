"""The command line: a thin output over the other packages (README.md, docs/design.md)."""
