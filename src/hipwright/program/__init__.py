"""Programs: HIP source and a launch plan in one file that is parsed, never executed (docs/program.md).

parse      text -> Parsed, torch-free; every error has its line
lower      Parsed + state table + launcher -> LoweredPlan (hipwright.program.lower.closures; imports torch)
trace      the library operators and launches of a plan (hipwright.program.lower.trace; imports torch)
modelnew   Program -> a KernelBench ModelNew file, and ModelNew candidates (hipwright.program.modelnew)
convert    a ModelNew file -> Program, where possible (hipwright.program.convert; torch-free)
hazards    what goes wrong on AMD GPUs, found in the text (hipwright.program.hazards; torch-free)
"""

from hipwright.program.knobs import Knob
from hipwright.program.parse import parse
from hipwright.program.parsed import Parsed
from hipwright.program.signature import KernelSignatures, Param, Signature

__all__ = ["KernelSignatures", "Knob", "Param", "Parsed", "Signature", "parse"]
