"""What one run of the suite is about, handed to every pytest process as a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .settings import NEEDS, NO_ENGINE, SHARES, UNREPAIRED, Group, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .clients.contract import EngineSpec
    from .releases import Device


@dataclass(frozen=True, kw_only=True)
class Run:
    """The engines to open and what they share.

    ``checkpoints`` are folders by model kind.
    ``layers`` is deliberately unsorted, and holds the first, middle and last: states must come back under the
    layer they were asked for, not in the order in which the model computes them.

    Engines that are short of everything capture two layers alone, `layers_of`: what was asked for is given, no more.

    ``only`` limits a group, by name, to some cases, ``test_x.py::test_y``, or with an empty list to all of it;
    `settings.NO_ENGINE` stands for the cases without an engine. What is not named there is not run; if nothing is,
    everything is run.
    """

    release: str
    device: Device
    dtype: str
    groups: tuple[Group, ...]
    layers: tuple[int, ...]
    checkpoints: Mapping[str, str]
    work: str
    snapshots: str
    variables: Mapping[str, str]
    repair: Mapping[str, Any]
    block_size: int
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    repairs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By client, for those of somebody else's code: what `EngineSpec.repairs` names."""

    def spec(self, group: Group) -> EngineSpec:
        """What a group's engine is opened with: with the build's repair, but for the one group that shows why."""
        repair: dict[str, Any] = {} if group == UNREPAIRED else dict(self.repair)
        arguments = {**SHARES[self.device], **repair.pop("extra_arguments", {})}
        return group.setting.spec(
            model=self.checkpoints[group.model_kind],
            layers=self.layers_of(group),
            block_size=self.block_size,
            device=self.device,
            dtype=self.dtype,
            **NEEDS[group.model_kind],
            repairs=tuple(self.repairs.get(group.client, ())),
            extra_arguments=arguments,
            **repair,
        )

    def layers_of(self, group: Group) -> tuple[int, ...]:
        """What a group's engine captures."""
        return (self.layers[0], self.layers[-2]) if group.setting.tight else self.layers

    def wants(self, group: str | None, case: str) -> bool:
        """Whether a case, with or without its parameters, is run on a group; None for one without an engine."""
        if not self.only:
            return True
        name = group if group is not None else NO_ENGINE
        if name not in self.only:
            return False
        return not self.only[name] or case.partition("[")[0] in self.only[name]

    def reference(self, model_kind: str) -> Path:
        """Where the Hugging Face states of a checkpoint are, or will be."""
        return Path(f"{self.checkpoints[model_kind]}.safetensors")

    @property
    def walks(self) -> list[Group]:
        """The groups whose settings the repair cases use: one a repairable client, the cheapest to boot."""
        return list({group.client: group for group in self.groups if group.client in self.repairs}.values())

    @property
    def logs(self) -> Path:
        return Path(self.work) / "logs"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Run:
        data = json.loads(path.read_text(encoding="utf-8"))
        groups = tuple(Group(**{**group, "setting": Setting(**group["setting"])}) for group in data.pop("groups"))
        return cls(groups=groups, layers=tuple(data.pop("layers")), **data)
