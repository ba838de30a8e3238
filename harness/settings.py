"""The engine settings the suite opens, and which client opens which: every distinct one is a boot."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from .clients.contract import EngineSpec
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .clients.contract import ExecutorBackend

ModelKind: TypeAlias = Literal["deepseek-v2", "kimi-k25"]
MODEL_KINDS: tuple[ModelKind, ...] = get_args(ModelKind)
# What a checkpoint needs of any engine, as fields of `EngineSpec`. The remote code is a file that the suite wrote.
NEEDS: Mapping[ModelKind, Mapping[str, Any]] = {
    "deepseek-v2": {},
    "kimi-k25": {"trust_remote_code": True, "tokenizer": True},
}
# What an engine takes of a device that many share, as vLLM's engine arguments. With the KV cache's size given, vLLM
# does not measure memory while others take it, and only looks whether the share is free (v1/worker/utils.py,
# `request_memory`, 0.20.2 and 0.26.0). The longest prompts in all slots take 50 MB.
SHARES: Mapping[str, Mapping[str, Any]] = {
    "cpu": {},
    "cuda": {"gpu_memory_utilization": 0.04, "kv_cache_memory_bytes": 2**28},
}

_TIGHT_TOKENS = 160
# What most kernels take; `releases.Build` says where it is another.
BLOCK_SIZE = 32

# What the cases that open no engine are listed under.
NO_ENGINE = "no engine"

# So little of everything that the suite's prompts are cut into chunks, hit each other's cached prefixes, wait for
# a slot, and preempt each other.
_TIGHT: Mapping[str, Any] = {
    "max_model_len": _TIGHT_TOKENS,
    "max_num_batched_tokens": 32,
    "long_prefill_token_threshold": 16,
    "max_num_seqs": 4,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to run the engine."""

    name: str
    executor_backend: ExecutorBackend
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    engine_core_process: bool = False
    async_scheduling: bool = False
    tight: bool = False

    @property
    def ranks(self) -> int:
        """How many workers there are."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def spec(self, *, model: str, layers: tuple[int, ...], block_size: int = BLOCK_SIZE, **others: Any) -> EngineSpec:
        """What an engine of this setting is opened with.

        Args:
            model: the checkpoint's folder.
            layers: what to capture.
            block_size: tokens a KV block, where KV blocks are few: room for one longest prompt, and the null block.
            others: further fields of `EngineSpec`.
        """
        blocks = {"block_size": block_size, "num_kv_blocks": 1 + math.ceil(_TIGHT_TOKENS / block_size)}
        return EngineSpec(
            **{
                "executor_backend": self.executor_backend,
                "tensor_parallel_size": self.tensor_parallel_size,
                "pipeline_parallel_size": self.pipeline_parallel_size,
                "engine_core_process": self.engine_core_process,
                "async_scheduling": self.async_scheduling,
                **({**_TIGHT, **blocks} if self.tight else {}),
                "model": model,
                "layers": layers,
                **others,
            }
        )


UNI = Setting(name="uni-tp1", executor_backend="uni")
MP = Setting(name="mp-tp1", executor_backend="mp")
MP_TP2 = Setting(name="mp-tp2", executor_backend="mp", tensor_parallel_size=2)
CORE = Setting(name="core-tp1", executor_backend="uni", engine_core_process=True)
TIGHT = Setting(name="tight-tp1", executor_backend="uni", tight=True)
TIGHT_MP = Setting(name="tight-mp-tp1", executor_backend="mp", tight=True)
ASYNC = Setting(
    name="async-tp2",
    executor_backend="mp",
    tensor_parallel_size=2,
    engine_core_process=True,
    async_scheduling=True,
    tight=True,
)
# Only on request: what few builds can do.
PP2 = Setting(name="mp-pp2", executor_backend="mp", pipeline_parallel_size=2)
RAY = Setting(name="ray-tp2", executor_backend="ray", tensor_parallel_size=2)


_STAGED = ("mp", "ray")
_KNOWN = {setting.name: setting for setting in (UNI, MP, MP_TP2, CORE, TIGHT, TIGHT_MP, ASYNC, PP2, RAY)}
_NAME = re.compile(r"(?P<kind>mp|ray|core|tight|async)(-tp(?P<ranks>[1-9]\d*))?(-pp(?P<stages>[2-9]|[1-9]\d+))?")


def named(name: str) -> Setting:
    """The setting of a name: ``uni-tp1``, and ``mp-``, ``ray-``, ``core-``, ``tight-`` or ``async-tpN`` of any size.

    ``mp`` and ``ray`` may have stages, ``mp-pp2`` and ``mp-tp2-pp2``.

    Raises:
        UsageError: there is none.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    found = _NAME.fullmatch(name)
    if found is None or not (found["ranks"] or found["stages"]) or (found["stages"] and found["kind"] not in _STAGED):
        raise UsageError(
            f"there is no setting {name!r}: {', '.join(_KNOWN)}; and mp, ray, core, tight and async for any size, as "
            f"{MP_TP2.name}, the first two with stages, as {PP2.name} and mp-tp2-pp2."
        )
    kind, size = found["kind"], int(found["ranks"] or 1)
    uni: ExecutorBackend = "uni" if size == 1 and kind not in _STAGED else "mp"
    return Setting(
        name=name,
        executor_backend="ray" if kind == "ray" else uni,
        tensor_parallel_size=size,
        pipeline_parallel_size=int(found["stages"] or 1),
        engine_core_process=kind in {"core", "async"},
        async_scheduling=kind == "async",
        tight=kind in {"tight", "async"},
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """A client under one setting, on one checkpoint: one engine, shared by all its cases."""

    client: str
    setting: Setting
    model_kind: ModelKind = "deepseek-v2"

    @property
    def name(self) -> str:
        plain = f"{self.client}-{self.setting.name}"
        return plain if self.model_kind == "deepseek-v2" else f"{plain}-{self.model_kind}"

    @property
    def needs(self) -> tuple[str, ...]:
        """What a build must be able to do, in the words of ``limits.toml``."""
        asked = {
            "async-scheduling": self.setting.async_scheduling,
            "pipeline-parallel": self.setting.pipeline_parallel_size > 1,
            "ray": self.setting.executor_backend == "ray",
        }
        return (self.model_kind, *(need for need in asked if asked[need]))


# Where the two clients would boot the same thing, one of them does.
_DEFAULT = (
    Group(client="executor", setting=MP_TP2),
    Group(client="executor", setting=MP_TP2, model_kind="kimi-k25"),
    Group(client="llm", setting=ASYNC),
    Group(client="llm", setting=MP_TP2),
    Group(client="executor", setting=MP),
    Group(client="llm", setting=CORE),
    Group(client="executor", setting=TIGHT),
    Group(client="executor", setting=UNI),
    Group(client="llm", setting=UNI),
)

_ON_REQUEST = tuple(Group(client=client, setting=setting) for setting in (PP2, RAY) for client in ("executor", "llm"))

# What only this client's whole suite has: batches of an extraction overlap in worker processes alone.
_FURTHER: Mapping[str, tuple[Setting, ...]] = {"extract": (TIGHT_MP,)}

# Always opened as the release comes: cheap, and as users boot it.
UNREPAIRED = Group(client="llm", setting=UNI)


def recorded(group: Group) -> Group | None:
    """The group of ours whose snapshots a group is compared with: itself, or one with the same setting.

    The checkpoint makes no difference: what wraps the decoder stack may not change the structure of a reply.
    None where we have none of that setting: the structure of eight ranks' replies is not recorded.
    """
    plain = replace(group, model_kind="deepseek-v2")
    known = (*_DEFAULT, *_ON_REQUEST)
    return plain if plain in known else next((ours for ours in known if ours.setting == group.setting), None)


def on_request(group: Group) -> bool:
    """Whether a group of ours is opened only on request: its snapshots are kept apart, unused in any other run."""
    return group in _ON_REQUEST


def requested(
    tensor_parallel_sizes: Sequence[int], pipeline_parallel_size: int, executor_backend: ExecutorBackend
) -> list[Setting]:
    """The settings of engines that are opened only on request: `PP2`, `RAY` and what is like them.

    Args:
        tensor_parallel_sizes: one setting each; if empty, 1 for a pipeline, and 2 for a backend alone.
        pipeline_parallel_size: stages.
        executor_backend: what makes the workers.
    """
    sizes = tensor_parallel_sizes or ((1,) if pipeline_parallel_size > 1 else (2,))
    found = []
    for size in sorted(set(sizes), reverse=True):
        pipeline = [f"pp{pipeline_parallel_size}"] if pipeline_parallel_size > 1 else []
        tensor = [f"tp{size}"] if size > 1 or not pipeline else []
        setting = Setting(
            name="-".join([executor_backend, *tensor, *pipeline]),
            executor_backend=executor_backend,
            tensor_parallel_size=size,
            pipeline_parallel_size=pipeline_parallel_size,
        )
        found.append(setting)
    return found


def plan(
    clients: Sequence[str],
    tensor_parallel_sizes: Sequence[int],
    model_kind: ModelKind | None = None,
    on_request: Sequence[Setting] = (),
) -> list[Group]:
    """The engines to boot, slowest first.

    Args:
        clients: in-house names, or anybody's; empty for the in-house ones. Somebody else's client gets every
            setting; whoever opens asks it which it refuses.
        tensor_parallel_sizes: limit to these; empty for all that the suite has. A size without a setting of
            its own (4, 8) gets the multiprocess one.
        model_kind: every engine on this checkpoint; if not given, all on DeepseekV2 and one of ours on KimiK25.
        on_request: `requested` settings, which are then the only ones.
    """
    ours = {group.client for group in _DEFAULT}
    if on_request:
        kind = model_kind or "deepseek-v2"
        named = clients or sorted(ours)
        return [Group(client=name, setting=setting, model_kind=kind) for setting in on_request for name in named]
    groups = [group for group in _DEFAULT if not clients or group.client in clients]
    for name in clients:
        if name not in ours:
            own = (MP_TP2, ASYNC, MP, CORE, TIGHT, UNI, *_FURTHER.get(name, ()))
            groups += [Group(client=name, setting=setting) for setting in own]
    if tensor_parallel_sizes:
        wanted = set(tensor_parallel_sizes)
        known = {group.setting.tensor_parallel_size for group in groups}
        names = list(dict.fromkeys(group.client for group in groups))
        groups = [group for group in groups if group.setting.tensor_parallel_size in wanted]
        for size in sorted(wanted - known):
            setting = Setting(name=f"mp-tp{size}", executor_backend="mp", tensor_parallel_size=size)
            groups[:0] = [Group(client=name, setting=setting) for name in names]
    if model_kind is not None:
        groups = list(dict.fromkeys(replace(group, model_kind=model_kind) for group in groups))
    return groups


def chosen(clients: Sequence[str], names: Iterable[str], model_kind: ModelKind | None = None) -> list[Group]:
    """Engines of settings chosen by name, for some clients; for ours if none is named.

    Raises:
        UsageError: there is no such setting.
    """
    ours = dict.fromkeys(group.client for group in _DEFAULT)
    settings = [named(name) for name in names]
    kind = model_kind if model_kind is not None else "deepseek-v2"
    return [
        Group(client=client, setting=setting, model_kind=kind) for setting in settings for client in clients or ours
    ]
