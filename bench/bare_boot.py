"""Boot one engine, generate one token, exit: what a user's shortest script costs, with nothing of the suite.

``python bench/bare_boot.py ARGUMENTS.json`` in a release's environment, with the keyword arguments of ``vllm.LLM``.
Where the suite drives the executor itself, the same setting is booted through ``LLM`` here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(arguments: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(**json.loads(Path(arguments).read_text(encoding="utf-8")))
    llm.generate(
        [{"prompt_token_ids": [2, 3, 5, 7, 11]}],
        SamplingParams(max_tokens=1, detokenize=False),
        use_tqdm=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
