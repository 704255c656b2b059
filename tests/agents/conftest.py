"""Makes the search tests' landscape importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "search"))
