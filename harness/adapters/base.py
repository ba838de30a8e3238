"""What the adapters of all generations share: the boot sequence and the scheduler loop.

The order of the steps is that of `EngineCore.__init__` and `_initialize_kv_caches`
(v1/engine/core.py, 0.11.0 to 0.32.0); the steps that came later are methods that do nothing here.
"""

from __future__ import annotations

import abc
import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from harness import capabilities as facts
from harness.engine_arguments import engine_arguments
from harness.errors import NotApplicableError

from . import prefix_cache, shims

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.clients.contract import EngineSpec


class Adapter(abc.ABC):
    """Drives vLLM's scheduler and executor for one generation."""

    generation: ClassVar[str]

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.has = facts.installed()
        self.vllm_config: Any = None
        self.executor: Any = None
        self.scheduler: Any = None
        self._block_hasher: Any = None

    # The boot.

    def boot(self) -> None:
        """Start the executor, plan and allocate the KV cache, and make the scheduler.

        If a step fails, the workers that are up by then are ended.
        """
        from vllm import EngineArgs
        from vllm.config import set_current_vllm_config
        from vllm.plugins import load_general_plugins
        from vllm.v1.executor.abstract import Executor

        load_general_plugins()
        self.vllm_config = EngineArgs(**engine_arguments(self.spec)).create_engine_config()
        if self.spec.trust_remote_code:
            self._load_remote_code()
        try:
            with set_current_vllm_config(self.vllm_config):
                self.executor = Executor.get_class(self.vllm_config)(self.vllm_config)
                specs = self.executor.get_kv_cache_specs()
                self.negotiate_layout(specs)
                memory = self.executor.determine_available_memory()
                configs, scheduler_config = self.plan(specs, memory)
                self.executor.initialize_from_config(configs)
                self.warm_up()
                self.scheduler = self._make_scheduler(scheduler_config)
        except BaseException:
            self.close()
            raise

    def _load_remote_code(self) -> None:
        """Make a multimodal model's processor once, as ``LLM`` does before its workers start.

        Its code is copied into a cache without a lock: workers that are first would copy it over each other.
        """
        from vllm.multimodal import MULTIMODAL_REGISTRY

        if self.vllm_config.model_config.is_multimodal_model:
            MULTIMODAL_REGISTRY.create_processor(self.vllm_config.model_config)

    def negotiate_layout(self, specs: list[dict[str, Any]]) -> None:
        """Agree with the workers on a KV-cache layout."""

    def plan(self, specs: list[dict[str, Any]], memory: list[int]) -> tuple[list[Any], Any]:
        """The KV-cache configs of the workers, and the scheduler's.

        The block size is the groups', not the one in our config: since 0.18.1 workers choose it after loading.
        """
        from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config

        configs = self.worker_configs(specs, memory)
        scheduler_config = generate_scheduler_kv_cache_config(configs)
        cache_config = self.vllm_config.cache_config
        cache_config.num_gpu_blocks = scheduler_config.num_blocks
        cache_config.block_size = min(group.kv_cache_spec.block_size for group in scheduler_config.kv_cache_groups)
        return configs, scheduler_config

    def worker_configs(self, specs: list[dict[str, Any]], memory: list[int]) -> list[Any]:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

        configs: list[Any] = get_kv_cache_configs(self.vllm_config, specs, memory)
        return configs

    def warm_up(self) -> None:
        """Warm the model up, where that is a step of its own."""

    def _make_scheduler(self, kv_cache_config: Any) -> Any:
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.structured_output import StructuredOutputManager

        sizes = shims.scheduler_block_sizes(self.has, self.vllm_config, kv_cache_config)
        if self.spec.enable_prefix_caching:
            default = sizes.get("block_size", self.vllm_config.cache_config.block_size)
            self._block_hasher = prefix_cache.block_hasher(sizes.get("hash_block_size", default))
        return Scheduler(
            vllm_config=self.vllm_config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=StructuredOutputManager(self.vllm_config),
            **sizes,
        )

    # Requests and steps.

    def add(self, request_id: str, prompt: Sequence[int]) -> None:
        """Queue a prompt; one token is generated, as vLLM does no prefill without it.

        The salt keeps it from the cached prefixes of other requests: rows that are not computed again cannot be
        captured. Its own, after it was preempted, it finds.
        """
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self.scheduler.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=list(prompt),
                sampling_params=SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, detokenize=False),
                pooling_params=None,
                cache_salt=request_id,
                block_hasher=self._block_hasher,
                **shims.request_arguments(self.has),
            )
        )

    def abort(self, request_ids: Sequence[str]) -> None:
        """Forget requests, those that are done or unknown excepted; the next step tells the workers."""
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def busy(self) -> bool:
        """Whether requests wait or run, or finished ones are still to be told to the workers."""
        return bool(self.scheduler.has_requests())

    def step(self) -> int:
        """Schedule, run and account for one batch; how many tokens it had.

        The step after the last token carries only the ids of finished requests: without it the workers
        keep their slots (v1/worker/gpu/states.py, since 0.12.0).
        """
        scheduled = self.scheduler.schedule()
        self.scheduler.update_from_output(scheduled, self.run(scheduled))
        return int(scheduled.total_num_scheduled_tokens)

    @abc.abstractmethod
    def run(self, scheduled: Any) -> Any:
        """One batch through the executor: its ``ModelRunnerOutput``."""

    def begin(self, scheduled: Any) -> Callable[[], Any]:
        """Have one batch run.

        Returns:
            What waits for its ``ModelRunnerOutput``; it is there already where the executor gives nothing earlier.
        """
        output = self.run(scheduled)
        return lambda: output

    @abc.abstractmethod
    def protocol(self, requests: Sequence[tuple[str, list[int]]], *, skip: int) -> list[dict[str, str]]:
        """One step a request, the second phase left out of the first ``skip``: what each call gave.

        The engine is usable again afterwards.
        """

    # Workers.

    def rpc(
        self,
        method: str,
        arguments: tuple[Any, ...] = (),
        *,
        unique_reply_rank: int | None = None,
        limit: float | None = None,
    ) -> Any:
        """``collective_rpc``, its reply untouched; ``limit`` instead of the spec's timeout, in seconds.

        Raises:
            NotApplicableError: ``unique_reply_rank`` on an executor without it.
        """
        extra: dict[str, Any] = {}
        if unique_reply_rank is not None:
            if self.spec.executor_backend == "uni":
                raise NotApplicableError("UniProcExecutor.collective_rpc has no unique_reply_rank in any release")
            if "unique_reply_rank" not in inspect.signature(self.executor.collective_rpc).parameters:
                # Ray's, before it was made of the multiprocess one (v1/executor/ray_executor.py, 0.16.0).
                raise NotApplicableError(f"{type(self.executor).__name__}.collective_rpc has no unique_reply_rank")
            extra["unique_reply_rank"] = unique_reply_rank
        seconds = self.spec.timeout if limit is None else limit
        return self.executor.collective_rpc(method, timeout=seconds, args=arguments, **extra)

    def begin_rpc(self, method: str, arguments: tuple[Any, ...]) -> Callable[[], list[Any]]:
        """Have every worker called, behind what it was given before.

        Returns:
            What waits for their replies, as `rpc` gives them; they are there already where the executor gives nothing
            earlier.
        """
        replies = self.rpc(method, arguments)
        return lambda: replies

    def rpc_one(self, method: str, rank: int) -> Any:
        """One rank's reply, unwrapped where the release wraps it."""
        reply = self.rpc(method, unique_reply_rank=rank)
        return reply[0] if shims.UNIQUE_REPLY_IN_A_LIST.needed(self.has) else reply

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown()
            self.executor = None


def kind(value: Any) -> str:
    """How a step record names what a call gave."""
    return "None" if value is None else type(value).__name__
