"""The audit that looks for wrong programs which the verifiers accept (docs/audit.md)."""
