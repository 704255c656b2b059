"""The list of targets, looked up by name, by kind and by architecture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hipwright.errors import BadInput
from hipwright.targets.base import NVIDIA, Architecture, Target


class TargetList:
    """Targets in the order in which they are listed and, of GPU runtimes, preferred. Iterates over the targets."""

    def __init__(self, *targets: Target) -> None:
        self._targets = list(targets)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._targets)

    def __contains__(self, name: object) -> bool:
        return any(target.name == name for target in self._targets)

    def __getitem__(self, name: str) -> Target:
        """The target of that name. Raises BadInput, with the names there are."""
        found = self.get(name)
        if found is None:
            raise BadInput(f"unknown target {name!r}", hint=f"targets: {', '.join(self.names())}")
        return found

    def get(self, name: str) -> Target | None:
        """The target of that name, None without one."""
        return next((target for target in self._targets if target.name == name), None)

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(target.name for target in self._targets)

    @property
    def gpus(self) -> tuple[Target, ...]:
        """Targets that run on a GPU of this machine, the preferred one first."""
        return tuple(target for target in self._targets if target.is_gpu)

    @property
    def simulated(self) -> tuple[Target, ...]:
        """Targets whose machine code software executes."""
        return tuple(target for target in self._targets if target.is_simulated)

    def with_wave(self, lanes: int) -> str:
        """The offline targets whose wavefront has that many lanes, as in "gfx90a, gfx942 and gfx950"."""
        names = [target.name for target in self._targets if target.is_offline and target.waves == (lanes,)]
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

    @property
    def running(self) -> tuple[Target, ...]:
        """Targets on which programs run, the host first."""
        return tuple(sorted((t for t in self._targets if not t.is_offline), key=lambda t: not t.is_host))

    @property
    def default_offline(self) -> tuple[str, ...]:
        """Names of the offline targets that are built for when no target is named."""
        return tuple(target.name for target in self._targets if target.by_default)

    def is_gpu(self, name: str) -> bool:
        """Whether `name` is a target that runs on a GPU; False for a name that is not listed."""
        return any(target.name == name for target in self.gpus)

    def is_host(self, name: str) -> bool:
        """Whether `name` is a target that runs on the processor; False for a name that is not listed."""
        return any(target.name == name and target.is_host for target in self._targets)

    def is_simulated(self, name: str) -> bool:
        """Whether software executes the machine code of the target `name`; False for a name that is not listed."""
        return any(target.name == name and target.is_simulated for target in self._targets)

    def runs_in_software(self, name: str) -> bool:
        """Whether programs run on this machine's processor, as machine code of it or of a GPU."""
        return self.is_host(name) or self.is_simulated(name)

    def is_amd(self, name: str) -> bool:
        """Whether the target `name` is an AMD one; False for a name that is not listed."""
        return any(target.name == name and target.is_amd for target in self._targets)

    def runs(self, name: str) -> bool:
        """Whether programs run on the target `name`; False for a name that is not listed."""
        return any(target.name == name for target in self.running)

    def gpu(self, name: str) -> Target:
        """The GPU target of that name. Raises BadInput for any other."""
        found = self.get(name)
        if found is None or not found.is_gpu:
            raise BadInput(f"{name!r} is no GPU target", hint=f"targets on a GPU: {self.gpu_choices()}")
        return found

    def gpu_choices(self, template: str = "{}", joint: str = " or ") -> str:
        """The names of the GPU targets for a message, each put into `template`, in alphabetical order."""
        return joint.join(template.format(name) for name in sorted(target.name for target in self.gpus))

    def architecture(self, name: str) -> Architecture | None:
        """The figures of an architecture by its compiler's name ("sm_90a", "gfx942"); None where none are known."""
        known = {one.name: one for target in self._targets for one in target.architectures}
        if name in known:
            return known[name]
        base = known.get(name.rstrip("af"))  # NVIDIA's sm_90a is an sm_90 with features that no successor keeps
        return base if base is not None and base.vendor == NVIDIA else None

    @contextmanager
    def added(self, target: Target) -> Iterator[Target]:
        """List one more target inside the block, before the targets that run. ValueError for a name that is taken."""
        if target.name in self:
            raise ValueError(f"there is a target {target.name} already")
        place = sum(known.is_offline for known in self._targets) if target.is_offline else len(self._targets)
        self._targets.insert(place, target)
        try:
            yield target
        finally:
            self._targets.remove(target)


class OfflineArchitectures(Mapping[str, Architecture]):
    """The architecture of every offline target of a list by the target's name, in the order of the list."""

    def __init__(self, targets: TargetList) -> None:
        self._targets = targets

    def __getitem__(self, name: str) -> Architecture:
        found = self._targets.get(name)
        if found is None or not found.is_offline:
            raise KeyError(name)
        return found.architecture

    def __iter__(self) -> Iterator[str]:
        return (target.name for target in self._targets if target.is_offline)

    def __len__(self) -> int:
        return sum(1 for _ in self)
