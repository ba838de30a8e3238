"""A uv that downloads nothing: it notes what it was asked, and makes an interpreter that does nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    said = sys.stdin.read() if arguments[:2] == ["pip", "compile"] else ""
    with Path(os.environ["FAKE_UV_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"arguments": arguments, "stdin": said, "environment": dict(os.environ)}) + "\n")
    if arguments[0] == "venv":
        folder = Path(arguments[-1])
        if "--clear" in arguments:
            shutil.rmtree(folder, ignore_errors=True)
        (folder / "bin").mkdir(parents=True)
        python = folder / "bin" / "python"
        python.write_text(f"#!/bin/sh\n{os.environ.get('FAKE_PYTHON', 'exit 0')}\n", encoding="utf-8")
        python.chmod(0o755)
        return 0
    if arguments[:2] == ["pip", "compile"]:
        offered = os.environ.get("FAKE_CPU_TORCH", "nowhere")
        return 0 if offered == "links" or (offered == "backend" and "--torch-backend" in arguments) else 1
    sys.stderr.write(os.environ.get("FAKE_INSTALL_SAYS", ""))
    return 1 if "FAKE_INSTALL_SAYS" in os.environ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
