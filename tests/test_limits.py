from __future__ import annotations

from typing import TYPE_CHECKING

import flow
import pytest

from harness import check, limits, releases, settings
from harness.errors import UsageError
from harness.settings import MP, MP_TP2, PP2, RAY, Group

if TYPE_CHECKING:
    from pathlib import Path

    from harness.limits import Limit

KIMI = Group(client="executor", setting=MP_TP2, model_kind="kimi-k25")
PLAIN = Group(client="executor", setting=MP)


@pytest.mark.parametrize("limit", limits.load(), ids=lambda limit: f"{limit.need} {limit.releases[0]}")
def test_limit_is_of_pinned_builds_and_has_evidence(limit: Limit) -> None:
    for version in limit.releases:
        assert limit.device in releases.find(version).builds, (version, limit)
    on_request = settings.plan([], [], on_request=[PP2, RAY])
    assert limit.need in {need for group in (*settings.plan([], []), *on_request) for need in group.needs}, limit
    assert len(limit.why.split()) > 5, limit
    assert ".py" in limit.evidence, limit


def test_a_build_has_one_limit_a_need() -> None:
    seen = [(version, limit.device, limit.need) for limit in limits.load() for version in limit.releases]
    assert len(set(seen)) == len(seen), seen


@pytest.mark.parametrize(
    ("release", "device", "needs", "limited"),
    [
        ("0.15.1", "cpu", ("kimi-k25",), True),
        ("0.11.0", "cpu", ("deepseek-v2", "async-scheduling"), True),
        ("0.11.0", "cuda", ("deepseek-v2", "async-scheduling"), False),
        ("0.15.1", "cuda", ("kimi-k25",), False),
        ("0.26.0", "cpu", ("deepseek-v2", "pipeline-parallel"), False),
        ("0.27.1", "cpu", ("deepseek-v2", "pipeline-parallel"), True),
        ("0.16.0", "cpu", ("deepseek-v2", "ray"), True),
        ("0.16.0", "cuda", ("deepseek-v2", "ray"), False),
        ("0.15.1", "cpu", ("deepseek-v2",), False),
        ("0.16.0", "cpu", ("kimi-k25",), False),
        ("0.15.1.dev3", "cpu", ("kimi-k25",), False),
    ],
)
def test_limit_is_of_its_build_and_need_only(
    release: str, device: str, needs: tuple[str, ...], limited: bool
) -> None:
    assert (limits.of_build(release, device, needs) is not None) is limited


@pytest.mark.parametrize(
    ("release", "has_it", "said"),
    [("0.15.1", True, "runs on a GPU only"), ("0.14.1", False, "no KimiK25ForConditionalGeneration")],
)
def test_engine_that_a_release_cannot_run_is_left_out_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str, has_it: bool, said: str
) -> None:
    facts = {**flow.FACTS, "release": release, "capabilities": {"kimi_k25": has_it}}
    assert check._possible([KIMI, PLAIN], facts, flow.options(tmp_path)) == [PLAIN]
    out = capsys.readouterr().out
    assert "executor-mp-tp2-kimi-k25 is left out" in out, out
    assert said in out, out


def test_engine_that_a_release_can_run_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check._possible([KIMI, PLAIN], flow.FACTS, flow.options(tmp_path)) == [KIMI, PLAIN]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "names", "said"),
    [
        ({"pipeline_parallel_size": 2}, ["executor-mp-pp2", "llm-mp-pp2"], "what a pipeline stage gives"),
        ({"executor_backend": "ray"}, ["executor-ray-tp2", "llm-ray-tp2"], "no Ray resource"),
    ],
)
def test_request_that_a_build_cannot_serve_is_refused_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    names: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("harness.identity.environment", lambda: {**flow.FACTS, "release": "0.32.0"})
    with pytest.raises(UsageError, match="no engine is left"):
        check.check(flow.options(tmp_path, **changes))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" is left out")[0] for line in lines] == names, lines
    assert all(said in line for line in lines), lines
