"""An engine spec as vLLM's own engine arguments, which have had these names in every pinned release."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clients.contract import EngineSpec


def engine_arguments(spec: EngineSpec) -> dict[str, Any]:
    """Keyword arguments for ``vllm.LLM`` and ``vllm.EngineArgs``.

    ``async_scheduling`` is set unless the spec leaves it to vLLM: its default turned from off to automatic in 0.14.1
    (config/scheduler.py), and from 0.14.1 to 0.23.0 the single-process executor then replies with an unfinished
    output.
    """
    arguments: dict[str, Any] = {
        "model": spec.model,
        "skip_tokenizer_init": not spec.tokenizer,
        "dtype": spec.dtype,
        "seed": 0,
        "max_model_len": spec.max_model_len,
        "tensor_parallel_size": spec.tensor_parallel_size,
        "pipeline_parallel_size": spec.pipeline_parallel_size,
        "distributed_executor_backend": spec.executor_backend,
        "enforce_eager": True,
        "max_num_batched_tokens": spec.max_num_batched_tokens,
        "max_num_seqs": spec.max_num_seqs,
        "enable_prefix_caching": spec.enable_prefix_caching,
        "enable_chunked_prefill": spec.enable_chunked_prefill,
        "long_prefill_token_threshold": spec.long_prefill_token_threshold,
        **({} if spec.async_scheduling is None else {"async_scheduling": spec.async_scheduling}),
        "trust_remote_code": spec.trust_remote_code,
        "worker_extension_cls": spec.extension,
        "disable_log_stats": True,
        **spec.extra_arguments,
    }
    if spec.num_kv_blocks is not None:
        arguments["num_gpu_blocks_override"] = spec.num_kv_blocks
    if spec.block_size is not None:
        arguments["block_size"] = spec.block_size
    return arguments


def set_variables(spec: EngineSpec) -> None:
    """What vLLM reads from the environment and not from its arguments; call it before importing vLLM."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if spec.engine_core_process else "0"
    os.environ["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] = str(max(1, int(spec.timeout)))
