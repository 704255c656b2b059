"""The loop-level IR: index polynomials, and scalar expressions over them."""
