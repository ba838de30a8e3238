"""What an extraction is to be, worked out and checked as a whole before anything is written or booted."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness import identity, releases
from harness.checkpoint import model_config
from harness.clients.contract import EngineSpec, check_spec
from harness.clients.extract import asynchronous
from harness.engine_arguments import engine_arguments
from harness.errors import CaptureError, UsageError

from . import model
from .layouts import Form
from .manifest import Manifest
from .prompt_file import Limits, PromptFile
from .room import staged_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .shard import Shard

# What vLLM's own server takes, and a forward of which an H200 makes in 50 ms (width 7168).
BATCHED_TOKENS = 8192
SEQUENCES = 256
# A forward waits for the files when the disk is slow: that is no fault of a worker's.
REPLY_SECONDS = 300.0
AXES = {
    "connector": {"hidden_states": "tokens, layers in the order of settings.layers, hidden_size"},
    "speculators": {"hidden_states": "a list, layers in the order of settings.layers, of tokens, hidden_size"},
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for; None leaves it to `plan`."""

    model: str
    layers: tuple[int, ...]
    prompts: Path
    output: Path
    layout: str
    shard: Shard
    device: str
    dtype: str
    tensor_parallel_size: int
    executor_backend: Any
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    max_model_len: int | None
    trust_remote_code: bool
    engine_arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An extraction that can start. ``variables`` are the release's, for its processes."""

    request: Request
    spec: EngineSpec
    prompts: PromptFile
    manifest: Manifest
    variables: Mapping[str, str]

    @property
    def staged_bytes(self) -> int:
        """What a rank takes of its device beside vLLM, of a dtype of two bytes if vLLM is to choose it."""
        dtype = "bfloat16" if self.spec.dtype == "auto" else self.spec.dtype
        form = Form(layers=len(self.spec.layers), hidden_size=self.manifest.hidden_size, dtype=dtype)
        return staged_bytes(form, self.spec.max_num_batched_tokens)


def plan(request: Request) -> Plan:
    """Work it out.

    Raises:
        EnvironmentUnusableError: there is no usable vLLM here.
        UsageError: the checkpoint is not whole or lacks a layer, or a prompt or an argument is wrong.
    """
    facts = identity.environment()
    build = releases.of_distribution(facts["distribution"], facts["version"])
    spec = _spec(request, build.repair.engine_arguments if build and build.repair else {})
    try:
        check_spec(spec)
    except CaptureError as error:  # Of what the command line names, not of what a capture did.
        raise UsageError(str(error)) from error
    config = model_config(request.model)
    prompts = PromptFile(
        request.prompts,
        model.tokenizer(request.model, trust_remote_code=request.trust_remote_code),
        _limits(request, config),
    )
    longest = request.max_model_len or max(prompts.tokens) + 1
    spec = replace(
        spec,
        max_model_len=longest,
        enable_chunked_prefill=spec.max_num_batched_tokens < longest,
        tokenizer=model.multimodal(request.model),
    )
    return Plan(
        request=request,
        spec=spec,
        prompts=prompts,
        manifest=_manifest(request, spec, prompts, facts, config["hidden_size"]),
        variables=build.environment if build else {},
    )


def _spec(request: Request, repair: Mapping[str, Any]) -> EngineSpec:
    spec = EngineSpec(
        model=request.model,
        layers=request.layers,
        tensor_parallel_size=request.tensor_parallel_size,
        executor_backend=request.executor_backend,
        device=request.device,
        dtype=request.dtype,
        max_num_batched_tokens=request.max_num_batched_tokens or BATCHED_TOKENS,
        max_num_seqs=request.max_num_seqs or SEQUENCES,
        trust_remote_code=request.trust_remote_code,
        async_scheduling=asynchronous(request.executor_backend),
        timeout=REPLY_SECONDS,
    )
    if taken := sorted(set(request.engine_arguments) & set(engine_arguments(spec))):
        raise UsageError(
            f"--engine-argument {taken[0]}: the command sets it, by an option of its own or because a capture needs "
            f"it so. Leave it out."
        )
    return replace(spec, extra_arguments={**repair, **request.engine_arguments})


def _limits(request: Request, config: Mapping[str, Any]) -> Limits:
    """What fits: one token is generated after a prompt, as vLLM does no prefill without it."""
    known = config.get("max_position_embeddings")
    if request.max_model_len is None and isinstance(known, int):
        advice = (
            f"The model's config has max_position_embeddings {known}, and one token is generated: shorten it, or "
            f"give --max-model-len if the model takes more"
        )
        return Limits(vocabulary=config["vocab_size"], longest=known - 1, advice=advice)
    longest = (request.max_model_len or 2**31) - 1
    advice = f"One token is generated within --max-model-len {request.max_model_len}: shorten it, or give more"
    return Limits(vocabulary=config["vocab_size"], longest=longest, advice=advice)


def _manifest(
    request: Request, spec: EngineSpec, prompts: PromptFile, facts: Mapping[str, Any], hidden_size: int
) -> Manifest:
    settings = {
        "vllm": f"{facts['distribution']} {facts['version']}",
        **model.digests(request.model),
        "layers": list(request.layers),
        "layout": request.layout,
        "samples": len(prompts),
        "samples_sha256": prompts.samples_sha256,
        "shards": request.shard.count,
        "device": request.device,
        "dtype": request.dtype,
        "tensor_parallel_size": request.tensor_parallel_size,
        "engine_arguments": dict(spec.extra_arguments),
    }
    return Manifest(
        shard=str(request.shard),
        # As it will be read back: tuples are lists then.
        settings=json.loads(json.dumps(settings)),
        engine={
            name: getattr(spec, name)
            for name in ("executor_backend", "max_num_batched_tokens", "max_num_seqs", "max_model_len")
        },
        model=request.model,
        prompts={"path": str(request.prompts), "sha256": prompts.sha256, "count": len(prompts)},
        hidden_size=hidden_size,
        axes=AXES[request.layout],
    )
