"""Which engines and cases a real run needs, and what no case covers: rules on plain data, each with its reason."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import endings, obstacles, settings
from .settings import NO_ENGINE, Group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .clients.contract import ExecutorBackend
    from .releases import Device
    from .settings import ModelKind, Setting
    from .target import Target

Engine: TypeAlias = Literal["ordinary", "tight", "none"]
When: TypeAlias = Literal["always", "chunks", "many", "prefix"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of ``needs.toml``: its comments say what the fields are."""

    name: str
    engine: Engine
    why: str
    parameters: tuple[str, ...] = ()
    when: When = "always"
    shows: tuple[str, ...] = ()
    executor: str = ""
    recorded: bool = False

    def ids(self, group: Group | None) -> tuple[str, ...]:
        """Its ids in evidence, on a group's engine."""
        start = [group.name] if group is not None else []
        rows = ["-".join([*start, parameter]) for parameter in self.parameters] or ["-".join(start)]
        return tuple(f"{self.name}[{row}]" if row else self.name for row in rows)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a real run is going to do; None where nothing is said, and then anything is possible.

    ``prompts`` is their number, ``longest_prompt`` in tokens. ``executor_backend`` is vLLM's choice if not given: the
    process itself for one rank, processes for several. ``engine_arguments`` are the names of further ones of vLLM.
    """

    client: str = "executor"
    device: Device = "cpu"
    dtype: str | None = None
    model: str | None = None
    layers: tuple[int, ...] = ()
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    executor_backend: ExecutorBackend | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    prompts: int | None = None
    longest_prompt: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    async_scheduling: bool = False
    engine_arguments: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def executor(self) -> ExecutorBackend:
        if self.executor_backend is not None:
            return self.executor_backend
        return "uni" if self.ranks == 1 else "mp"


@dataclass(frozen=True, kw_only=True)
class Need:
    """One case on one engine, None for a case without one, and why the run needs it."""

    case: Case
    group: Group | None
    reason: str

    @property
    def engine(self) -> str:
        return self.group.name if self.group is not None else NO_ENGINE

    @property
    def ids(self) -> tuple[str, ...]:
        return self.case.ids(self.group)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """All that a run needs; ``obstacles`` are why it certainly cannot work, ``warnings`` what no case covers."""

    needs: tuple[Need, ...]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The engines, slowest first."""
        return tuple(dict.fromkeys(need.group for need in self.needs if need.group is not None))


@functools.cache
def cases() -> tuple[Case, ...]:
    """All cases that a run may need."""
    lists = ("parameters", "shows")
    return tuple(Case(**row | {name: tuple(row.get(name, ())) for name in lists}) for row in table()["case"])


@functools.cache
def table() -> dict[str, Any]:
    """``needs.toml`` as it is."""
    text = importlib.resources.files(__package__).joinpath("needs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def work_out(request: Request, target: Target | None, devices: Mapping[str, Any]) -> Needs:
    """What a run needs.

    Args:
        request: the run.
        target: its model, if one is given.
        devices: what `hardware.describe` says.
    """
    kind = model_kind(target)
    first = Group(client=request.client, setting=ordinary(request), model_kind=kind)
    second = Group(client=request.client, setting=tight(request), model_kind=kind)
    groups: dict[Engine, Group | None] = {"ordinary": first, "tight": second, "none": None}
    conditions = _conditions(request)
    found = []
    unseen: dict[str, list[str]] = {"shows": [], "recorded": []}
    for case in cases():
        group, reason = groups[case.engine], conditions[case.when]
        if reason is None or (group is not None and not _runs(case, group)):
            continue
        if not set(case.shows) <= set(table()["shows"].get(request.client, ())):
            unseen["shows"].append(case.name)
        elif case.recorded and group is not None and not _recorded(group):
            unseen["recorded"].append(case.name)
        else:
            found.append(Need(case=case, group=group, reason=f"{case.why} ({reason})" if reason else case.why))
    uncovered = obstacles.uncovered(
        request, target, known=list(table()["architectures"]), harmless=table()["harmless"]["engine_arguments"]
    )
    return Needs(
        needs=tuple(found),
        obstacles=tuple(obstacles.of(request, target, devices)),
        warnings=(*uncovered, *_unseen(request, first, unseen)),
    )


def model_kind(target: Target | None) -> ModelKind:
    """The tiny model whose decoder stack, or wrapper, is nearest."""
    if target is None:
        return "deepseek-v2"
    known: dict[str, ModelKind] = table()["architectures"]
    kinds = [known[name] for name in target.architectures if name in known]
    return kinds[0] if kinds else "kimi-k25" if target.wrapped else "deepseek-v2"


def ordinary(request: Request) -> Setting:
    """The setting that has the run's ranks and executor."""
    if request.executor == "uni" and request.ranks == 1:
        return settings.UNI
    backend: ExecutorBackend = "ray" if request.executor == "ray" else "mp"
    return settings.requested([request.tensor_parallel_size], request.pipeline_parallel_size, backend)[0]


def tight(request: Request) -> Setting:
    """The one that has as many ranks a stage, and is short of everything; processes stand in for Ray's."""
    if request.executor != "uni" and request.tensor_parallel_size == 1 and not request.async_scheduling:
        return settings.TIGHT_MP
    return settings.named(f"{'async' if request.async_scheduling else 'tight'}-tp{request.tensor_parallel_size}")


def _runs(case: Case, group: Group) -> bool:
    """Whether the suite runs a case on an engine of such a setting."""
    if case.executor and case.executor != group.setting.executor_backend:
        return False
    # Cases that end an engine are dealt out; closing is every engine's.
    name = case.name.partition("::")[2]
    return name not in endings.dealt() or endings.turn(name, group) is not None


def _recorded(group: Group) -> bool:
    """Whether the suite has snapshots of such an engine: of the clients that it records, their own and no other's."""
    alike = settings.recorded(group)
    recording = {each.client for each in settings.plan((), ())}
    return alike is not None and (alike.client == group.client or group.client not in recording)


def _conditions(request: Request) -> dict[When, str | None]:
    """For each condition of a case, why it holds for this run; None if it does not."""
    longest, budget, count = request.longest_prompt, request.max_num_batched_tokens, request.prompts
    alone = count is not None and count <= 1
    chunks: str | None
    if not request.chunked_prefill:
        chunks = None
    elif longest is None or budget is None:
        chunks = "nothing says that the prompts fit the token budget"
    elif longest > budget:
        chunks = f"the longest prompt has {longest} tokens, and a forward takes {budget}"
    else:
        chunks = None if alone else f"prompts share a forward of {budget} tokens, and the last is cut"
    many: str | None = None
    if not alone:
        many = f"{'any number of' if count is None else count} prompts, and " + (
            f"{request.max_num_seqs} at a time" if request.max_num_seqs is not None else "more than one at a time"
        )
    tight = "asynchronous scheduling" if request.async_scheduling else None
    return {
        "always": "",
        "chunks": chunks or tight,
        "many": many or tight,
        "prefix": "prefix caching is on" if request.prefix_caching else None,
    }


def _unseen(request: Request, group: Group, unseen: Mapping[str, list[str]]) -> list[str]:
    """What is not held against the client, or compared, and why."""
    said = []
    if unseen["shows"]:
        names = ", ".join(name.partition("::")[2] for name in unseen["shows"])
        said.append(f"client {request.client} does not show what these cases look at: {names}")
    if unseen["recorded"]:
        names = ", ".join(name.partition("::")[2] for name in unseen["recorded"])
        said.append(f"the structure of replies under {group.setting.name} is recorded nowhere: {names}")
    return said
