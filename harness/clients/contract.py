"""What a client is: the engine spec it opens, the samples it gives, and the checks every client owes.

Nothing here imports vllm or torch, so a bad spec is refused before a second is spent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from harness.checkpoint import check_weights, model_config
from harness.errors import (
    IncompleteSampleError,
    InvalidLayerError,
    InvalidPromptError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from harness.surface import Surface

ExecutorBackend: TypeAlias = Literal["uni", "mp", "ray"]


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """One engine setting. Equal specs can share an engine.

    ``layers`` are outputs of decoder layers, 0-based, in the order the samples give them.
    ``tokenizer`` has vLLM load the checkpoint's, which a multimodal model asks for also where prompts are token ids.
    ``async_scheduling`` is vLLM's, and None whatever its default makes of that.
    ``timeout`` bounds every reply of a worker, in seconds, with what was asked of it before; booting is bounded by
    whoever opens.
    ``extra_arguments`` are vLLM engine arguments that only one build needs (see `releases.Repair`).
    ``repairs`` are names of `Repair`, and of stand-ins, that the client applies to somebody else's code.
    """

    model: str
    layers: tuple[int, ...]
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    executor_backend: ExecutorBackend = "mp"
    engine_core_process: bool = False
    device: str = "cpu"
    dtype: str = "float32"
    max_model_len: int = 512
    max_num_batched_tokens: int = 1024
    max_num_seqs: int = 16
    enable_prefix_caching: bool = False
    enable_chunked_prefill: bool = False
    long_prefill_token_threshold: int = 0
    block_size: int | None = None
    num_kv_blocks: int | None = None
    async_scheduling: bool | None = False
    trust_remote_code: bool = False
    tokenizer: bool = False
    extension: str = "harness.worker.CaptureExtension"
    extra_arguments: Mapping[str, Any] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    timeout: float = 60.0

    @property
    def ranks(self) -> int:
        """How many workers there are: as many as the tensor-parallel size in each pipeline stage, stage by stage."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One prompt's states: for each requested layer, ``[n, hidden_size]`` in the model's dtype, on the CPU."""

    token_ids: list[int]
    states: Mapping[int, torch.Tensor]


class Engine(Protocol):
    """An open engine. `close` leaves no process and no shared memory behind.

    One that changes vLLM, or lets something stand in for a part of it, says so in ``repairs``, a sequence of texts
    that the evidence keeps.
    """

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        """One sample a prompt, in order."""

    def close(self) -> None: ...


class RawEngine(Engine, Protocol):
    """An engine that also shows the protocol underneath; the reply and step cases run only on these.

    Any of these methods may raise `NotApplicableError`.
    """

    def identities(self) -> list[dict[str, Any]]:
        """What `CaptureExtension.harness_identity` answers, a worker each, in rank order."""

    def activity(self) -> dict[str, int]:
        """What the first rank did since the last call: see `harness.worker.Activity`."""

    def inputs(self, prompt: Sequence[int]) -> dict[int, torch.Tensor]:
        """What goes into each decoder layer, ``[n, hidden_size]``, and under their number what leaves the last.

        The prompt must fit one chunk.
        """

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """What every rank replies to this very call of a worker method, in rank order.

        Raises:
            WorkerFailedError: a rank raised; the engine can go on.
            EngineOutOfStepError: a reply belongs to another call, or an earlier call was left half done.
        """

    def rpc(
        self, method: str, *arguments: Any, unique_reply_rank: int | None = None, limit: float | None = None
    ) -> Any:
        """The reply of a worker method, exactly as vLLM's ``collective_rpc`` gives it; ``limit`` instead of the
        spec's, in seconds.
        """

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        """One step a prompt, the second phase left out of the first ``skip``; what each call gave."""


class Client(Protocol):
    """Code that turns token ids into hidden states through vLLM."""

    name: str

    def refuses(self, spec: EngineSpec) -> str | None:
        """Why this client cannot open an engine of this kind, or None if it can."""

    def open(self, spec: EngineSpec) -> Engine: ...


def input_ids(layers: Sequence[int]) -> list[int]:
    """Outputs of layers as vLLM's own extraction counts, by input: layer i's output is the input of layer i + 1.

    The last layer's output gets the number of layers, which no layer has (model_executor/models/deepseek_v2.py,
    `DeepseekV2Model.forward`, 0.25.1 and newer: taken before the final norm; older ones drop it).
    """
    return [layer + 1 for layer in layers]


@dataclass(frozen=True, kw_only=True)
class Repair:
    """One change without which somebody else's code fails on some releases.

    ``symptom`` is a regular expression that the failure's text has; ``cause`` and ``advice`` are its finding's.
    ``needed`` tells from a release's surface whether it is; ``patch`` makes the change, in what the client gives it.
    A repair ``instead_of`` another one is none: it goes past the same failure and leaves the cause, and what the code
    does then is a finding of its own.
    """

    name: str
    symptom: str
    cause: str
    advice: str
    needed: Callable[[Surface], bool]
    patch: Callable[[Any], None]
    instead_of: str = ""


class RepairableClient(Client, Protocol):
    """A client of somebody else's code that some releases break; the repair cases run on these only."""

    repairs: tuple[Repair, ...]
    """In the order in which their failures are met."""

    def opens_with(self, device: str) -> tuple[str, ...]:
        """What its engines' specs name as ``repairs``, on the vLLM installed here.

        Raises:
            EnvironmentUnusableError: the code is not installed here.
        """


def check_spec(spec: EngineSpec) -> None:
    """Refuse what can be known to fail, before vLLM is imported.

    With ``load_format="dummy"`` vLLM makes the weights up: a config is all that such a checkpoint has.

    Raises:
        CheckpointError: see `model_config` and `check_weights`.
        InvalidLayerError: a layer id is out of range or given twice.
    """
    count = model_config(spec.model)["num_hidden_layers"]
    for layer in spec.layers:
        if not 0 <= layer < count:
            raise InvalidLayerError(
                f"layer {layer} does not exist: the model has {count} decoder layers, 0 to {count - 1}, "
                f"and layer i is the output of decoder layer i."
            )
    if not spec.layers or len(set(spec.layers)) != len(spec.layers):
        raise InvalidLayerError(f"layers {list(spec.layers)}: give at least one, each once.")
    if spec.extra_arguments.get("load_format") != "dummy":
        check_weights(spec.model)


def check_prompts(spec: EngineSpec, prompts: Sequence[Sequence[int]]) -> None:
    """Refuse prompts that vLLM would refuse, drop or read past its embedding for.

    Raises:
        InvalidPromptError: empty, too long, or with an id outside the vocabulary.
    """
    vocabulary = model_config(spec.model)["vocab_size"]
    longest = spec.max_model_len - 1  # One token is generated, as vLLM does no prefill without it.
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise InvalidPromptError(f"prompt {number} is empty: a prefill needs at least one token.")
        if len(prompt) > longest:
            raise InvalidPromptError(
                f"prompt {number} has {len(prompt)} tokens and the engine takes {longest}: "
                f"max_model_len {spec.max_model_len} less the one token that is generated."
            )
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < vocabulary:
                raise InvalidPromptError(
                    f"prompt {number} holds token id {token}; the vocabulary is 0 to {vocabulary - 1}."
                )


def match_recordings(
    prompts: Sequence[Sequence[int]], recordings: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The worker's recordings in the order of the prompts, matched by the token ids the worker saw.

    Not by request id: vLLM rewrites ids on the way to the worker in some releases.

    Raises:
        IncompleteSampleError: a prompt has no recording, or a recording lacks rows or belongs to nothing.
    """
    waiting: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}
    for recording in recordings:
        waiting.setdefault(tuple(recording["token_ids"]), []).append(recording)
    matched = []
    for number, prompt in enumerate(prompts):
        found = waiting.get(tuple(prompt), [])
        if not found:
            raise IncompleteSampleError(
                f"prompt {number} ({len(prompt)} tokens) has no recording: the workers saw "
                f"{sorted(len(recording['token_ids']) for recording in recordings)} tokens. "
                f"Its forward did not go through the hooks, or went through them under another step."
            )
        recording = found.pop(0)
        if missing := recording["missing"]:
            raise IncompleteSampleError(
                f"prompt {number}: rows {missing[0]} to {missing[-1]} of {len(prompt)} were never computed "
                f"({len(missing)} missing). A prefix-cache hit skips them: set enable_prefix_caching=False."
            )
        matched.append(recording)
    left = sum(map(len, waiting.values()))
    if left:
        raise IncompleteSampleError(f"{left} recordings belong to no prompt of this call: states of another one.")
    return matched
