"""A user's command for a bisection: does the `Request` of this environment's vLLM take ``eos_token_id``?

``$BROKEN`` names releases where it fails for another reason; ``$SLOW`` one that never gets done; what was tested is
appended to ``$TESTED``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path


def main() -> None:
    environment = Path(os.environ["VIRTUAL_ENV"])
    with Path(os.environ["TESTED"]).open("a", encoding="utf-8") as tested:
        tested.write(f"{environment.name} {os.getpid()}\n")
    if environment.name in os.environ.get("BROKEN", "").split():
        raise ImportError("libsomething.so.1: cannot open shared object file")
    while environment.name == os.environ.get("SLOW"):
        time.sleep(0.05)
    (source,) = environment.glob("lib/python*/site-packages/vllm/v1/request.py")
    if "eos_token_id" not in source.read_text(encoding="utf-8"):
        raise TypeError("Request.__init__() got an unexpected keyword argument 'eos_token_id'")


if __name__ == "__main__":
    main()
