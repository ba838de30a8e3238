"""Boot one engine setting, generate one token, exit: what a user's shortest script costs, with nothing of the suite.

``python bench/bare_boot.py CHECKPOINT BACKEND TENSOR_PARALLEL_SIZE CORE`` inside a release's environment. Where
the suite drives the executor itself, the same setting is booted through ``vllm.LLM`` here.
"""

from __future__ import annotations

import os
import sys


def main(checkpoint: str, backend: str, tensor_parallel_size: str, core: str) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = core
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=checkpoint,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=512,
        tensor_parallel_size=int(tensor_parallel_size),
        distributed_executor_backend=backend,
        enforce_eager=True,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    llm.generate(
        [{"prompt_token_ids": [2, 3, 5, 7, 11]}],
        SamplingParams(max_tokens=1, detokenize=False),
        use_tqdm=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
