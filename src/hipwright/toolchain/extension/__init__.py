"""Native extensions of ModelNew files, built in the sandbox."""
