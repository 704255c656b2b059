"""Performance: cost model, static estimate, paired timing, roofline, profiling and statistics (docs/measurement.md,
docs/estimate.md).
"""
