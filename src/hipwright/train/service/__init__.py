"""The scoring service: what stands before the judge and the environment when they are served (docs/service.md)."""
