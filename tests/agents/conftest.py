"""The searches' made-up landscape is used here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "search"))
