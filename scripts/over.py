"""Lets this environment's Python see the packages of another one too; prints what an extra of the project needs.

python scripts/over.py OTHER_ENVIRONMENT EXTRA > requirements.txt
"""

import sys
import sysconfig
import tomllib
from pathlib import Path

other_environment, extra = sys.argv[1:]
own = Path(sysconfig.get_path("purelib"))
other = Path(other_environment).resolve() / own.relative_to(Path(sys.prefix).resolve())
(own / "other.pth").write_text(f"import site; site.addsitedir({str(other)!r})\n", encoding="utf-8")
project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(project["optional-dependencies"][extra]))
