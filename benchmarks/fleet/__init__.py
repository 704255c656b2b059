"""The fleet measured on one machine: a Ray cluster of several nodes with devices that sleep (docs/fleet.md)."""
