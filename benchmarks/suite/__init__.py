"""The ground on which "kernels that win" is measured: docs/kernels.md."""
