"""Audits of the verifiers on known honest, broken and hostile candidates (docs/audit.md)."""
