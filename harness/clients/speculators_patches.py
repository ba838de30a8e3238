"""The smallest change that goes past each failure of speculators 0.3.0.

Each takes the module of `VllmHiddenStatesGenerator` and replaces one name in it; what has to change in the workers is
a function that they are sent by ``collective_rpc``, so this module imports the standard library alone. The library's
files stay as they were published.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# What `torch.cuda.mem_get_info` says on a CPU, free and total bytes: speculators takes 16 % of it for the KV cache.
MEMORY = (2**30, 2**30)


@contextlib.contextmanager
def applied(patches: Iterable[Callable[[Any], None]], generator: Any) -> Iterator[None]:
    """Apply patches to the generator's module, and take them back."""
    before = dict(vars(generator))
    try:
        for patch in patches:
            patch(generator)
        yield
    finally:
        vars(generator).update(before)


@contextlib.contextmanager
def memory_on_cpu() -> Iterator[None]:
    """A stand-in for `torch.cuda.mem_get_info`, which raises where there is no GPU."""
    import torch

    with mock.patch.object(torch.cuda, "mem_get_info", return_value=MEMORY):
        yield


def name_torch() -> None:
    """Make the name in the annotations of transformers' config class known to whoever evaluates them."""
    import torch
    from transformers import configuration_utils

    configuration_utils.torch = torch


def give(name: str, **arguments: Any) -> Callable[[Any], None]:
    """Add arguments to the calls of something."""

    def patch(generator: Any) -> None:
        setattr(generator, name, functools.partial(getattr(generator, name), **arguments))

    return patch


def insist(name: str, **arguments: Any) -> Callable[[Any], None]:
    """Replace arguments in the calls of something."""

    def patch(generator: Any) -> None:
        original = getattr(generator, name)
        setattr(generator, name, lambda **given: original(**{**given, **arguments}))

    return patch


def leave_out(name: str, parameter: str) -> Callable[[Any], None]:
    """Take an argument out of the calls of something."""

    def patch(generator: Any) -> None:
        original = getattr(generator, name)

        def call(**arguments: Any) -> Any:
            arguments.pop(parameter)
            return original(**arguments)

        setattr(generator, name, call)

    return patch


def give_block_sizes(generator: Any) -> None:
    """Give `Scheduler` the block sizes that `EngineCore` of the release would, from the KV-cache groups."""
    original = generator.Scheduler

    def call(*, vllm_config: Any, kv_cache_config: Any, **others: Any) -> Any:
        from harness import capabilities
        from harness.adapters import shims

        groups = kv_cache_config.kv_cache_groups
        vllm_config.cache_config.block_size = min(group.kv_cache_spec.block_size for group in groups)
        sizes = shims.scheduler_block_sizes(capabilities.installed(), vllm_config, kv_cache_config)
        return original(vllm_config=vllm_config, kv_cache_config=kv_cache_config, **sizes, **others)

    generator.Scheduler = call


def _override(generator: Any, **methods: Callable[..., Any]) -> None:
    executor = generator.MultiprocExecutor
    generator.MultiprocExecutor = type(executor.__name__, (executor,), methods)


def once_up(call: Callable[[Any], None]) -> Callable[[Any], None]:
    """Call something with the executor as soon as its workers are up."""

    def patch(generator: Any) -> None:
        original = generator.MultiprocExecutor.__init__

        def init(self: Any, vllm_config: Any) -> None:
            original(self, vllm_config=vllm_config)
            call(self)

        _override(generator, __init__=init)

    return patch


def in_workers(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """Run a function of this module in every worker once it is up."""
    return once_up(lambda executor: executor.collective_rpc(function))


def accept_any_model(_worker: Any) -> None:
    """Answer yes to speculators' question whether the model supports EAGLE-3."""
    from speculators.data_generation import custom_worker

    custom_worker.supports_eagle3 = lambda _model: True


def name_embedding_as_before(worker: Any) -> None:
    """Give the decoder stack's ``embed_input_ids`` its name from before 0.11.1 too."""
    stack = type(worker.model_runner.model.model)
    stack.get_input_embeddings = stack.embed_input_ids


def agree_on_layout(generator: Any) -> None:
    """Resolve the KV-cache layout with the workers, and put it into the configs that they are given."""
    original = generator.MultiprocExecutor

    def agree(executor: Any) -> None:
        from harness.adapters import negotiated_layout

        layout = negotiated_layout.resolve(executor.vllm_config, executor, executor.get_kv_cache_specs())
        executor.set_kv_cache_layout(layout)

    def initialize_from_config(self: Any, configs: list[Any]) -> None:
        for config in configs:
            config.kv_cache_layout = self.vllm_config.cache_config.kv_cache_layout
        original.initialize_from_config(self, configs)

    once_up(agree)(generator)
    _override(generator, initialize_from_config=initialize_from_config)


def pay_second_phase(generator: Any) -> None:
    """Call ``sample_tokens`` where ``execute_model`` says that it is owed."""
    original = generator.MultiprocExecutor.execute_model

    def execute_model(self: Any, *arguments: Any, **named: Any) -> Any:
        output = original(self, *arguments, **named)
        return self.sample_tokens(None) if output is None else output

    _override(generator, execute_model=execute_model)


def wrap_captured(wrap: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Change the reply that speculators takes ``[0]`` of."""

    def patch(generator: Any) -> None:
        original = generator.MultiprocExecutor.collective_rpc

        def collective_rpc(self: Any, method: Any, *arguments: Any, **named: Any) -> Any:
            reply = original(self, method, *arguments, **named)
            return wrap(reply) if method == "_get_captured_states" else reply

        _override(generator, collective_rpc=collective_rpc)

    return patch


def in_a_list(reply: Any) -> list[Any]:
    """As before 0.11.1."""
    return [reply]


def truthful(reply: list[Any]) -> list[Any]:
    """The same tensors, which ``if not tensor`` takes for present: what leaving the truth test out comes to."""
    import torch

    kind = type("TruthfulTensor", (torch.Tensor,), {"__bool__": lambda _self: True})
    return [states.as_subclass(kind) for states in reply]
