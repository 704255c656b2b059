"""`modelnew`: one file in KernelBench's form (`hipwright.program.modelnew.export`)."""

from __future__ import annotations

from hipwright.program.modelnew.export import export
from hipwright.ship.subject import Files, ShipFormat, ShippedProgram


def _files(subject: ShippedProgram) -> Files:
    return {"model_new.py": export(subject.program, subject.parsed, subject.source)}


FORMAT = ShipFormat("modelnew", "one file with a class ModelNew, as KernelBench takes it", _files, True)
