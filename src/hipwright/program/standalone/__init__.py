"""Stand-alone CUDA and HIP files as programs (docs/start.md). Torch-free; nothing of a file is executed.

read_source   the text of a .cu or .hip file and its task -> StandaloneSource: the program and what is to be known of it
wave_size     what a source assumes of the number of lanes of a warp, by line
"""

from hipwright.program.standalone.reading import StandaloneSource, dialect_of, read_source
from hipwright.program.standalone.wave_size import WaveAssumption, wave_assumptions

__all__ = ["StandaloneSource", "WaveAssumption", "dialect_of", "read_source", "wave_assumptions"]
