"""Many GPUs of many machines as one fleet, on Ray (docs/fleet.md).

Everything outside this package speaks of orders and their ends; only `link`, `cluster` and `board` import Ray, late.
"""
