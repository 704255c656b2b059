"""Programs: HIP source and a launch plan in one file that is parsed, never executed (docs/program.md).

parse      text -> Parsed, torch-free, every error with its line
lower      Parsed + state table + launcher -> Plan (hipwright.program.lower.closures; imports torch)
trace      which library operators and launches a plan makes (hipwright.program.lower.trace; imports torch)
modelnew   Program -> a KernelBench ModelNew file (torch-free)
"""

from hipwright.program.knobs import Knob
from hipwright.program.parse import parse
from hipwright.program.parsed import Parsed
from hipwright.program.signature import KernelSignatures, Param, Signature

__all__ = ["KernelSignatures", "Knob", "Param", "Parsed", "Signature", "parse"]
