"""What `hipwright model` is given: a script, a factory of a module, or a configuration. Runs no code of the user's."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hipwright.errors import BadInput
from hipwright.machine import existing_file
from hipwright.sandbox import python_paths

FORMS = "give a script (model.py or model.py:FACTORY), MODULE:FACTORY, or a transformers config.json"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MOST_SIBLINGS = 200


@dataclass(frozen=True)
class ModelSource:
    """A model to load. shown: as the caller wrote it; name: a word for it.

    kind: "script": path is the file, and attribute its factory, or "" for Model and get_inputs. "factory": path is the
    dotted module. "config": path is the JSON file. visible: files and folders that its code may read. folders: entries
    of sys.path for it. sizes: of a configuration's inputs, {"batch", "length"}.
    """

    shown: str
    kind: Literal["script", "factory", "config"]
    path: str
    attribute: str = ""
    visible: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A word for the model."""
        words = re.sub(r"\W+", "_", self.attribute or Path(self.path).stem).strip("_")
        return words or "model"

    def plain(self) -> dict[str, Any]:
        """What the contained process is told."""
        return {
            "kind": self.kind,
            "path": self.path,
            "attribute": self.attribute,
            "folders": list(self.folders),
            "sizes": self.sizes,
        }


def model_source(given: str, *, read: Sequence[Path] = (), batch: int = 1, length: int = 128) -> ModelSource:
    """The source that the caller names. read: further files and folders that the model's code may read. batch, length:
    of a configuration's inputs.

    Raises BadInput for what is none of the three forms, and for files that do not exist.
    """
    for path in read:
        if not path.exists():
            raise BadInput(f"no such file or folder to read: {path}")
    shown = tuple(path.absolute() for path in read)
    place, _, attribute = given.rpartition(":") if ":" in given else (given, "", "")
    if attribute and not _NAME.fullmatch(attribute):
        raise BadInput(f"{attribute!r} is no name of a factory", hint=FORMS)
    if place.endswith(".json"):
        if attribute:
            raise BadInput("a configuration has no factory", hint=FORMS)
        path = existing_file(Path(place), "configuration")
        return ModelSource(given, "config", str(path), "", (path, *shown), (), {"batch": batch, "length": length})
    if place.endswith(".py"):
        path = existing_file(Path(place), "model")
        return ModelSource(given, "script", str(path), attribute, (*_siblings(path), *shown), (str(path.parent),))
    if attribute and _NAME.fullmatch(place):
        return _factory(given, place, attribute, shown)
    raise BadInput(f"{given!r} is no model", hint=FORMS)


def _siblings(script: Path) -> list[Path]:
    """The script, and the modules and packages beside it. Nothing else of its folder is shown to its code."""
    near = sorted(script.parent.glob("*.py"))
    near += sorted(path.parent for path in script.parent.glob("*/__init__.py"))
    return [script, *near[:_MOST_SIBLINGS]]


def _factory(given: str, module: str, attribute: str, read: tuple[Path, ...]) -> ModelSource:
    """A factory of a module that is installed, or lies in the working directory or on PYTHONPATH."""
    first = module.partition(".")[0]
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(first)  # of the first part alone: a deeper one would run the package's code
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path[:] = before
    if spec is None:
        raise BadInput(f"there is no module {first}", hint=f"it is looked for here and on PYTHONPATH; {FORMS}")
    places = [Path(place) for place in spec.submodule_search_locations or ([spec.origin] if spec.origin else [])]
    folders, visible = _outside(places)
    return ModelSource(given, "factory", module, attribute, (*visible, *read), folders)


def _outside(places: Iterable[Path]) -> tuple[tuple[str, ...], list[Path]]:
    """(entries of sys.path, paths to show) of modules that the contained Python does not find by itself."""
    known = python_paths()
    own = [place for place in places if place.exists() and not any(place.is_relative_to(path) for path in known)]
    return tuple(dict.fromkeys(str(place.absolute().parent) for place in own)), [place.absolute() for place in own]
