"""The client that goes through ``vllm.LLM`` and ``LLM.collective_rpc``: two generations, one code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness import delivery
from harness.engine_arguments import engine_arguments, set_variables
from harness.errors import NotApplicableError

from .contract import EngineSpec, Sample, check_prompts, check_spec
from .failures import end, translated

if TYPE_CHECKING:
    from collections.abc import Sequence


class OpenLLM:
    """An open ``vllm.LLM``, and the processes below it."""

    def __init__(self, spec: EngineSpec) -> None:
        from vllm import LLM

        self.spec = spec
        self._workers: list[int] = []
        self._llm = LLM(**engine_arguments(spec))
        self._workers = [identity["pid"] for identity in self.identities()]

    def _call(self, method: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        with translated(self._workers):
            replies: list[Any] = self._llm.collective_rpc(method, timeout=self.spec.timeout, args=arguments)
        return replies

    def _prefill(self, requests: Sequence[dict[str, Any]]) -> list[Any]:
        """What vLLM gives for each request; one token is generated, as it does no prefill without it."""
        from vllm import SamplingParams

        with translated(self._workers):
            outputs: list[Any] = self._llm.generate(
                requests,
                SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, detokenize=False),
                use_tqdm=False,
            )
        return outputs

    def identities(self) -> list[dict[str, Any]]:
        return self._call("harness_identity")

    def close(self) -> None:
        end(self._llm.llm_engine.engine_core.shutdown, self._workers)


class LLMEngine(OpenLLM):
    """One whose workers have our hooks."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._call("harness_start", (list(spec.layers),))

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        check_prompts(self.spec, prompts)
        self._prefill([{"prompt_token_ids": list(prompt)} for prompt in prompts])
        return delivery.samples(self.spec, prompts, self._call("harness_take"))

    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        if unique_reply_rank is not None:
            raise NotApplicableError("LLM.collective_rpc has no unique_reply_rank in any release")
        return self._call(method)

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
