"""Since 0.29.0: the KV-cache layout is resolved with the workers before anything is planned."""

from __future__ import annotations

from typing import Any, ClassVar

from .explicit_warm_up import ExplicitWarmUp


class NegotiatedLayout(ExplicitWarmUp):
    generation: ClassVar[str] = "negotiated-layout"

    def negotiate_layout(self, specs: list[dict[str, Any]]) -> None:
        self.publish_layout(resolve(self.vllm_config, self.executor, specs))

    def publish_layout(self, name: str) -> None:
        self.executor.set_kv_cache_layout(name)

    def plan(self, specs: list[dict[str, Any]], memory: list[int]) -> tuple[list[Any], Any]:
        configs, scheduler_config = super().plan(specs, memory)
        for config in configs:
            config.kv_cache_layout = self.vllm_config.cache_config.kv_cache_layout
        return configs, scheduler_config


def resolve(vllm_config: Any, executor: Any, specs: list[dict[str, Any]]) -> str:
    """The name of the layout that all workers support."""
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout

    layout = resolve_kv_cache_layout(
        vllm_config,
        executor.get_supported_kv_cache_layouts(),
        [spec for of_worker in specs for spec in of_worker.values()],
    )
    return str(layout.name)
