"""The parts of a program without Python: its steps, recorded, and the C++ that repeats them."""
