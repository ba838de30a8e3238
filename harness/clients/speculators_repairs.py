"""Why speculators 0.3.0 fails on a release, failure by failure, in the order in which they are met."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from harness import capabilities
from harness import surface as surfaces

from . import speculators_patches as patches
from .contract import Repair

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.surface import Surface


def _has(capability: str) -> Callable[[Surface], bool]:
    return lambda surface: bool(getattr(capabilities.of(surface), capability))


def _takes(name: str, parameter: str) -> Callable[[Surface], bool]:
    """Whether a function or a config takes a parameter; given as ``name=default``, with that default."""
    return lambda surface: name in surface and parameter in surface[name].parameters


def _lacks(name: str, parameter: str) -> Callable[[Surface], bool]:
    return lambda surface: not _takes(name, parameter)(surface)


def _config_class_names_torch() -> bool:
    """Whether the transformers installed here declares its configs' dtype; importing it takes seconds."""
    found = importlib.util.find_spec("transformers")
    if found is None or found.origin is None:
        return False
    source = Path(found.origin).with_name("configuration_utils.py").read_text(encoding="utf-8")
    texts = [ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AnnAssign)]
    return any(text.startswith("dtype: ") and "torch." in text for text in texts)


def _cpu_attention_takes_multiples_of_32() -> bool:
    backend = surfaces.installed_root() / "v1" / "attention" / "backends" / "cpu_attn.py"
    return backend.exists() and "MultipleOf(32)" in backend.read_text(encoding="utf-8")


def _missing(name: str) -> Callable[[Surface], bool]:
    return lambda surface: name not in surface


IMPORT = Repair(
    name="import",
    symptom=r"PydanticUndefinedAnnotation: name 'torch' is not defined",
    cause="since transformers 5 its config class declares dtype as a torch.dtype, and imports torch for type "
    "checkers only (configuration_utils.py); speculators makes a pydantic model of it, which looks for the name",
    advice="set transformers.configuration_utils.torch = torch before speculators is imported, in the workers too",
    needed=lambda _surface: _config_class_names_torch(),
    patch=patches.insist(
        "ParallelConfig", worker_extension_cls="harness.clients.speculators_extension.HiddenStatesWorkerExtension"
    ),
)
"""Where it is needed, `patches.name_torch` comes first, and its patch sees to the workers."""

REPAIRS = (
    IMPORT,
    Repair(
        name="scheduler-config",
        symptom=r"SchedulerConfig[\s\S]*is_encoder_decoder",
        cause="SchedulerConfig requires is_encoder_decoder since 0.12.0 (config/scheduler.py), and speculators makes "
        "one by hand without",
        advice="pass is_encoder_decoder=False; or have EngineArgs.create_engine_config() build the configs",
        needed=_takes("SchedulerConfig", "is_encoder_decoder"),
        patch=patches.give("SchedulerConfig", is_encoder_decoder=False),
    ),
    Repair(
        name="eagle3-refusal",
        symptom=r"does not support hidden state extraction",
        cause="speculators' worker refuses a model that vLLM does not list as SupportsEagle3, and its DeepseekV2 is "
        "one only since 0.18.x (model_executor/models/deepseek_v2.py); the patched forward needs nothing of it",
        advice="leave the check out (custom_worker.py, _setup_hidden_states_capture)",
        needed=_missing("DeepseekV2ForCausalLM.set_aux_hidden_state_layers"),
        patch=patches.in_workers(patches.accept_any_model),
    ),
    Repair(
        name="kv-cache-specs",
        symptom=r"get_kv_cache_config_from_groups\(\).*kv_cache_specs",
        cause="get_kv_cache_config_from_groups has no parameter kv_cache_specs since 0.12.0 "
        "(v1/core/kv_cache_utils.py)",
        advice="leave the argument out",
        needed=_lacks("get_kv_cache_config_from_groups", "kv_cache_specs"),
        patch=patches.leave_out("get_kv_cache_config_from_groups", "kv_cache_specs"),
    ),
    Repair(
        name="kv-cache-layout",
        symptom=r"(?i)kv.cache.layout",
        cause="since 0.29.0 the KV-cache layout is agreed on with the workers before anything is planned "
        "(EngineCore._initialize_kv_caches, v1/engine/core.py), and speculators plans at once",
        advice="resolve_kv_cache_layout(), executor.set_kv_cache_layout() and the layout in every KVCacheConfig",
        needed=_has("negotiated_layout"),
        patch=patches.agree_on_layout,
    ),
    Repair(
        name="scheduler-block-size",
        symptom=r"Scheduler\.__init__\(\).*block_size",
        cause="Scheduler requires block_size since 0.11.1 (v1/core/sched/scheduler.py)",
        advice="pass the block size of the KV-cache groups, and hash_block_size where the scheduler takes it",
        needed=_has("scheduler_takes_block_size"),
        patch=patches.give_block_sizes,
    ),
    Repair(
        name="block-size",
        symptom=r"No common block size for 16",
        cause="speculators fixes a block size of 16, and the CPU attention backend takes multiples of 32 only since "
        "0.29.0 (v1/attention/backends/cpu_attn.py, get_supported_kernel_block_sizes)",
        advice="leave block_size out of CacheConfig: vLLM chooses one that the backend takes",
        needed=lambda _surface: _cpu_attention_takes_multiples_of_32(),
        patch=patches.leave_out("CacheConfig", "block_size"),
    ),
    Repair(
        name="input-embeddings",
        symptom=r"no attribute 'get_input_embeddings'",
        cause="DeepseekV2Model.get_input_embeddings is embed_input_ids since 0.11.1 "
        "(model_executor/models/deepseek_v2.py), and the patched forward calls it by its old name",
        advice="call embed_input_ids; or hook the decoder layers and leave the model's forward alone",
        needed=_missing("DeepseekV2Model.get_input_embeddings"),
        patch=patches.in_workers(patches.name_embedding_as_before),
    ),
    Repair(
        name="eos-token-id",
        symptom=r"unexpected keyword argument 'eos_token_id'",
        cause="Request takes no eos_token_id since 0.17.0 (v1/request.py): it is a sampling parameter's",
        advice="leave the argument out: one token is generated, whatever it is",
        needed=_lacks("Request.__init__", "eos_token_id"),
        patch=patches.leave_out("Request", "eos_token_id"),
    ),
    Repair(
        name="prefix-caching",
        symptom=r"(AssertionError|IndexError)[\s\S]*cache_full_blocks",
        cause="CacheConfig turns prefix caching on since 0.12.0 (config/cache.py); a Request made without a block "
        "hasher has no hashes, which shows once a prompt fills a block (v1/core/block_pool.py, cache_full_blocks)",
        advice="pass enable_prefix_caching=False: prefix hits would leave rows out anyway",
        needed=_takes("CacheConfig", "enable_prefix_caching=True"),
        patch=patches.give("CacheConfig", enable_prefix_caching=False),
    ),
    Repair(
        name="bare-reply",
        symptom=r"Boolean value of Tensor with more than one value is ambiguous",
        cause="collective_rpc(unique_reply_rank=0) replies with the bare value since 0.11.1, before with a list of "
        "one (v1/executor/multiproc_executor.py): [0] takes layer 0's tensor for the list of layers",
        advice="take the reply as it is, without [0]",
        needed=_has("bare_unique_reply"),
        patch=patches.wrap_captured(patches.in_a_list),
    ),
    Repair(
        name="truth-test",
        instead_of="bare-reply",
        symptom=r"tensors of \[\d+\]",
        cause="the reply of collective_rpc(unique_reply_rank=0) is bare since 0.11.1 "
        "(v1/executor/multiproc_executor.py), so [0] takes layer 0, [tokens, hidden], for the list of layers, and a "
        "loop over it gives a row [hidden] a token, each cut to the prompt's length n. The workers hold every layer, "
        "all right",
        advice="do not go past the truth test of the tensor: take the reply as it is, without [0]",
        needed=_has("bare_unique_reply"),
        patch=patches.wrap_captured(patches.truthful),
    ),
    Repair(
        name="second-phase",
        symptom=r"sample_tokens\(\) must be called after execute_model\(\)",
        cause="since 0.11.1 execute_model returns None and sample_tokens is owed (v1/worker/gpu_model_runner.py); "
        "speculators leaves it out, so the first step works and the second raises",
        advice="out = execute_model(so); out = sample_tokens(None) if out is None else out",
        needed=_has("sample_tokens"),
        patch=patches.pay_second_phase,
    ),
)
