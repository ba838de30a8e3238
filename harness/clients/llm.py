"""The client that goes through ``vllm.LLM`` and ``LLM.collective_rpc``: two generations, one code."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from harness import delivery
from harness.engine_arguments import engine_arguments, set_variables
from harness.errors import NotApplicableError

from .contract import EngineSpec, Sample, check_prompts, check_spec
from .failures import end, translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class LLMEngine:
    """An open ``vllm.LLM``."""

    def __init__(self, spec: EngineSpec) -> None:
        from vllm import LLM

        self.spec = spec
        self._workers: list[int] = []
        self._salts = itertools.count()
        self._llm = LLM(**engine_arguments(spec))
        self._workers = [identity["pid"] for identity in self.identities()]
        self._call("harness_start", (list(spec.layers),))

    def _call(self, method: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        with translated(self._workers):
            replies: list[Any] = self._llm.collective_rpc(method, timeout=self.spec.timeout, args=arguments)
        return replies

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        from vllm import SamplingParams

        check_prompts(self.spec, prompts)
        with translated(self._workers):
            self._llm.generate(
                # The salt keeps a prompt from cached prefixes: rows that are not computed again are not seen.
                [{"prompt_token_ids": list(prompt), "cache_salt": f"{next(self._salts)}"} for prompt in prompts],
                SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, detokenize=False),
                use_tqdm=False,
            )
        return delivery.samples(self.spec, prompts, self._call("harness_take"))

    def identities(self) -> list[dict[str, Any]]:
        return self._call("harness_identity")

    def activity(self) -> dict[str, int]:
        activity: dict[str, int] = self._call("harness_activity")[0]
        return activity

    def inputs(self, prompt: Sequence[int]) -> dict[int, torch.Tensor]:
        self._call("harness_follow_inputs")
        self.capture([prompt])
        return delivery.merged(self._call("harness_inputs"))

    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        if unique_reply_rank is not None:
            raise NotApplicableError("LLM.collective_rpc has no unique_reply_rank in any release")
        return self._call(method)

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        raise NotApplicableError("LLM drives both phases itself")

    def close(self) -> None:
        end(self._llm.llm_engine.engine_core.shutdown, self._workers)


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
