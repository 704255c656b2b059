"""A program's chosen knobs written into its text; it lives in program/, where data sets need it as well."""

from hipwright.program.settle import settled

__all__ = ["settled"]
