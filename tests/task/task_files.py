"""Where the task files of these tests are."""

from pathlib import Path

FILES = Path(__file__).parent / "files"
BAD = Path(__file__).parents[1] / "bad_input"
