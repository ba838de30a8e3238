"""The client that goes through ``vllm.LLM`` and ``LLM.collective_rpc``: two generations, one code."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from harness import delivery
from harness.engine_arguments import engine_arguments, set_variables
from harness.errors import CaptureError, NotApplicableError

from .calls import Calls
from .contract import EngineSpec, Sample, check_prompts, check_spec
from .extended import Extended
from .failures import bounded, end

if TYPE_CHECKING:
    from collections.abc import Sequence


class OpenLLM:
    """An open ``vllm.LLM``, and the processes below it."""

    def __init__(self, spec: EngineSpec) -> None:
        from vllm import LLM

        self.spec = spec
        self._calls = Calls(self._send)
        self._llm = LLM(**engine_arguments(spec))
        self._calls.workers = [identity["pid"] for identity in self.identities()]

    def _send(self, method: str, arguments: tuple[Any, ...], limit: float | None = None) -> list[Any]:
        seconds = self.spec.timeout if limit is None else limit

        def send() -> list[Any]:
            replies: list[Any] = self._llm.collective_rpc(method, timeout=seconds, args=arguments)
            return replies

        return bounded(send, seconds, self._calls.workers) if self.spec.engine_core_process else send()

    def _prefill(self, requests: Sequence[dict[str, Any]]) -> list[Any]:
        """What vLLM gives for each request; one token is generated, as it does no prefill without it."""
        from vllm import SamplingParams

        with self._calls.watched(fatal=(CaptureError,)):
            outputs: list[Any] = self._llm.generate(
                requests,
                SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, detokenize=False),
                use_tqdm=False,
            )
        return outputs

    def identities(self) -> list[dict[str, Any]]:
        return self._calls.ask("harness_identity")

    def close(self) -> None:
        end(self._llm.llm_engine.engine_core.shutdown, self._calls.workers)


class LLMEngine(OpenLLM, Extended):
    """One whose workers have our hooks."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._salts = itertools.count()
        self.ask("harness_start", list(spec.layers))

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        check_prompts(self.spec, prompts)
        self.ask("harness_clear")
        # The salt keeps a prompt from cached prefixes: rows that are not computed again are not seen.
        self._prefill(
            [{"prompt_token_ids": list(prompt), "cache_salt": f"{next(self._salts)}"} for prompt in prompts]
        )
        return delivery.samples(self.spec, prompts, self.ask("harness_take"))

    def rpc(
        self, method: str, *arguments: Any, unique_reply_rank: int | None = None, limit: float | None = None
    ) -> Any:
        if unique_reply_rank is not None:
            raise NotApplicableError("LLM.collective_rpc has no unique_reply_rank in any release")
        with self._calls.watched():
            return self._send(method, arguments, limit)

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        raise NotApplicableError("LLM drives both phases itself")


class LLMClient:
    """Ours, through the public entry point."""

    name = "llm"

    def refuses(self, spec: EngineSpec) -> str | None:
        return None

    def open(self, spec: EngineSpec) -> LLMEngine:
        check_spec(spec)
        set_variables(spec)
        return LLMEngine(spec)


CLIENT = LLMClient()
