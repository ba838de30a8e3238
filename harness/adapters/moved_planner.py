"""Since 0.33.0: the planner is ``v1/core/kv_cache_planning.py`` and plans from groups made beforehand.

Follows `EngineCore._initialize_kv_caches` of 0.33.0. That release has no CPU build, so this adapter has been
read against its wheel (tests/test_adapters_boot.py) and not run.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .negotiated_layout import NegotiatedLayout


class MovedPlanner(NegotiatedLayout):
    generation: ClassVar[str] = "moved-planner"

    def negotiate_layout(self, specs: list[dict[str, Any]]) -> None:
        from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups

        self.groups = get_global_kv_cache_groups(self.vllm_config, specs)
        self.vllm_config.adjust_dcp_kv_cache_interleave_size(self.groups)
        super().negotiate_layout(specs)

    def publish_layout(self, name: str) -> None:
        interleave = self.vllm_config.parallel_config.cp_kv_cache_interleave_size
        self.executor.set_kv_cache_layout(name, interleave)

    def worker_configs(self, specs: list[dict[str, Any]], memory: list[int]) -> list[Any]:
        from vllm.v1.core.kv_cache_planning import get_kv_cache_configs

        configs: list[Any] = get_kv_cache_configs(self.vllm_config, specs, memory, self.groups)
        return configs
