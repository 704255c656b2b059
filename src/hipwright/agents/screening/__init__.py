"""The plausibility screener: features, two small regressions, and how well calibrated it is."""
