"""Which vLLM objects clients rely on: ``surface`` reads them, snapshots record them, ``harness diff`` compares them.

A row is the places that an object has lived in, newest first, and its members that matter. A member that a class
lacks is looked for in the places after it, so a base can stand there too. A function's own signature is always read.
Of a class:

- ``fields``: those of a dataclass; ``bases``: what it inherits from;
- another name: a method's signature, or what an attribute is made with (``property`` for a property).

Of a function, ``extra=`` reads what its body gives to the keyword ``extra``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Row: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

EXECUTOR: tuple[Row, ...] = (
    (
        ("v1.executor.abstract:Executor", "executor.executor_base:ExecutorBase"),
        (
            *("__init__", "get_class", "collective_rpc", "execute_model", "sample_tokens", "shutdown"),
            *("get_kv_cache_specs", "determine_available_memory", "initialize_from_config"),
            *("compile_or_warm_up_model", "get_supported_kv_cache_layouts", "set_kv_cache_layout"),
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
    (
        (
            "v1.executor.ray_executor:RayDistributedExecutor",
            "v1.executor.ray_distributed_executor:RayDistributedExecutor",
        ),
        ("bases", "execute_model", "sample_tokens", "collective_rpc"),
    ),
    (("v1.executor.ray_executor_v2:RayExecutorV2",), ("bases",)),
    (("entrypoints.llm:LLM",), ("collective_rpc", "generate")),
    (("v1.engine.core:EngineCore",), ("__init__",)),
)
WORKERS: tuple[Row, ...] = (
    (("v1.worker.worker_base:WorkerWrapperBase", "worker.worker_base:WorkerWrapperBase"), ("__init__",)),
    (
        ("v1.worker.worker_base:WorkerBase",),
        ("__init__", "get_model", "get_kv_cache_spec", "execute_model", "sample_tokens"),
    ),
    (
        ("v1.worker.gpu_worker:Worker",),
        ("execute_model", "sample_tokens", "get_kv_cache_spec", "compile_or_warm_up_model"),
    ),
    (("v1.worker.cpu_worker:CPUWorker",), ("bases",)),
    (("v1.worker.gpu_model_runner:ExecuteModelState",), ("fields",)),
    (("v1.worker.gpu.model_runner:GPUModelRunner",), ("execute_model", "sample_tokens")),
    (("v1.outputs:ModelRunnerOutput",), ("fields",)),
    (("sequence:IntermediateTensors",), ("__init__",)),
    (("distributed.parallel_state:get_pp_group", "distributed:get_pp_group"), ()),
    (("distributed.parallel_state:get_tp_group", "distributed:get_tp_group"), ()),
)
SCHEDULER: tuple[Row, ...] = (
    (
        ("v1.core.sched.scheduler:Scheduler",),
        ("__init__", "add_request", "schedule", "update_from_output", "finish_requests", "get_grammar_bitmask"),
    ),
    (("v1.core.sched.interface:SchedulerInterface",), ("has_requests",)),
    (("v1.core.sched.output:SchedulerOutput",), ("fields",)),
    (("v1.core.sched.output:NewRequestData",), ("fields",)),
    (("v1.core.sched.output:CachedRequestData",), ("fields",)),
    (("v1.core.sched.output:GrammarOutput",), ("fields",)),
    (("v1.structured_output:StructuredOutputManager",), ("__init__",)),
    (("v1.request:Request",), ("__init__", "from_engine_core_request")),
    (("v1.request:RequestStatus",), ("FINISHED_ABORTED", "WAITING_FOR_FSM")),
    (("sampling_params:SamplingParams",), ("fields",)),
)
CONFIGS: tuple[Row, ...] = (
    (("config.utils:config",), ("extra=",)),
    (("config.scheduler:SchedulerConfig", "config:SchedulerConfig"), ("fields",)),
    (("config.cache:CacheConfig", "config:CacheConfig"), ("fields",)),
    (("config.parallel:ParallelConfig", "config:ParallelConfig"), ("fields",)),
    (("config.model:ModelConfig", "config:ModelConfig"), ("fields",)),
    (("config.device:DeviceConfig", "config:DeviceConfig"), ("fields",)),
    (("config.load:LoadConfig", "config:LoadConfig"), ("fields",)),
    (("config.vllm:VllmConfig", "config:VllmConfig"), ("fields", "use_v2_model_runner")),
    (("config.vllm:DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES",), ()),
    (("config.vllm:set_current_vllm_config", "config:set_current_vllm_config"), ()),
    (("engine.arg_utils:EngineArgs",), ("create_engine_config",)),
)
PLANNER: tuple[Row, ...] = (
    (("v1.kv_cache_interface:KVCacheConfig",), ("fields",)),
    (("v1.kv_cache_interface:KVCacheGroupSpec",), ("fields",)),
    (("v1.kv_cache_interface:KVCacheTensor",), ("fields",)),
    *(
        ((f"v1.core.kv_cache_planning:{name}", f"v1.core.kv_cache_utils:{name}"), ())
        for name in (
            "get_kv_cache_configs",
            "get_kv_cache_config_from_groups",
            "_get_kv_cache_groups_uniform_spec",
            "unify_hybrid_kv_cache_specs",
        )
    ),
    (("v1.core.kv_cache_planning:get_global_kv_cache_groups",), ()),
    (("v1.core.kv_cache_utils:generate_scheduler_kv_cache_config",), ()),
    (("v1.core.kv_cache_utils:resolve_kv_cache_block_sizes",), ()),
    (("v1.core.kv_cache_utils:get_request_block_hasher",), ()),
    (("v1.attention.backends.utils:resolve_kv_cache_layout",), ()),
)
MODELS: tuple[Row, ...] = (
    (("model_executor.models.deepseek_v2:DeepseekV2DecoderLayer",), ("forward",)),
    (
        ("model_executor.models.deepseek_v2:DeepseekV2Model",),
        ("forward", "get_input_embeddings", "embed_input_ids"),
    ),
    (
        ("model_executor.models.deepseek_v2:DeepseekV2ForCausalLM",),
        ("bases", "model", "forward", "set_aux_hidden_state_layers"),
    ),
    (
        ("model_executor.models.kimi_k25:KimiK25ForConditionalGeneration",),
        ("bases", "model", "language_model", "forward"),
    ),
)
EAGLE3: tuple[Row, ...] = (
    (("model_executor.models.interfaces:supports_eagle3",), ()),
    (
        ("model_executor.models.interfaces:SupportsEagle3",),
        (
            "set_aux_hidden_state_layers",
            "get_eagle3_aux_hidden_state_layers",
            "get_eagle3_default_aux_hidden_state_layers",
        ),
    ),
    (("model_executor.models.interfaces:EagleModelMixin",), ("fields", "_set_aux_hidden_state_layers")),
)
_CONNECTORS = "distributed.kv_transfer.kv_connector.v1"
CONNECTOR: tuple[Row, ...] = (
    (("config.speculative:SpeculativeConfig", "config:SpeculativeConfig"), ("fields",)),
    (("config.kv_transfer:KVTransferConfig", "config:KVTransferConfig"), ("fields",)),
    (
        (f"{_CONNECTORS}.base:KVConnectorBase_V1",),
        (
            *("__init__", "register_kv_caches", "start_load_kv", "save_kv_layer", "wait_for_save", "get_finished"),
            *("get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta", "request_finished"),
        ),
    ),
    (
        (f"{_CONNECTORS}.example_hidden_states_connector:ExampleHiddenStatesConnector",),
        ("bases", "__init__", "save_kv_layer", "request_finished", "get_finished", "get_finished_count"),
    ),
    ((f"{_CONNECTORS}.example_hidden_states_connector:load_hidden_states",), ()),
    ((f"{_CONNECTORS}.example_hidden_states_connector:cleanup_hidden_states",), ()),
    (("v1.kv_cache_interface:HiddenStateCacheSpec",), ("bases", "fields")),
)
LOGGING: tuple[Row, ...] = (
    (("utils.system_utils:decorate_logs", "utils:decorate_logs"), ()),
    (("utils.system_utils:_add_prefix", "utils:_add_prefix"), ()),
    (("logger:set_vllm_process_name",), ()),
    (("logger:init_logger",), ()),
    (("config.logging:LoggingConfig",), ("fields",)),
)

AREAS: dict[str, tuple[Row, ...]] = {
    "executor": EXECUTOR,
    "workers": WORKERS,
    "scheduler": SCHEDULER,
    "configs": CONFIGS,
    "planner": PLANNER,
    "models": MODELS,
    "eagle3": EAGLE3,
    "connector": CONNECTOR,
    "logging": LOGGING,
}
WATCHED: tuple[Row, ...] = tuple(row for rows in AREAS.values() for row in rows)

# What some of them are to a client, where the name doesn't say.
MEANS = {
    "config(extra=)": "what a config class does with a field that it lacks: nothing given, it is ignored",
    "_add_prefix": "prefixes what a worker prints",
    "set_vllm_process_name": "prefixes vLLM's log records, and nothing else",
    "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES": "run by model runner V2 without asking",
    "DeepseekV2ForCausalLM.bases": "DeepSeek V2 and V3, Kimi K2",
}

# Requirements in a wheel's metadata that decide whether it can be installed beside a client.
REQUIREMENTS = ("torch", "transformers")


def modules() -> frozenset[str]:
    """The modules that rows name, and the packages that these are in, below ``vllm``."""
    paths = [place.partition(":")[0].split(".") for places, _members in WATCHED for place in places]
    return frozenset(".".join(path[:size]) for path in paths for size in range(1, len(path) + 1))


def names(rows: Iterable[Row] = WATCHED) -> frozenset[str]:
    """What the entries of these rows can be called."""
    found = set()
    for (place, *_older), members in rows:
        name = place.partition(":")[2]
        inner = {name if member == "fields" else f"{name}.{member}" for member in members if "=" not in member}
        found |= inner or {name}
        found |= {f"{name}({member})" for member in members if "=" in member}
    return frozenset(found)
