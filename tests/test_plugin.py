from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import flow
import pytest

from harness.run import Run

if TYPE_CHECKING:
    from pathlib import Path

OUTCOMES = """
    import json, os
    from pathlib import Path

    import pytest

    from harness.errors import CaptureError, ClientError, NotApplicableError
    from harness.findings import expect
    from harness.structure import describe

    FAULT = {"expected": "4", "got": "771", "cause": "a list less", "advice": "do not take [0]"}

    def test_captures(engine, prompts):
        samples = engine.shared_capture(prompts)
        assert samples is engine.shared_capture(prompts)
        assert [sample.token_ids for sample in samples] == prompts
        assert [tuple(sample.states) for sample in samples] == [engine.spec.layers] * 2

    def test_is_not_offered(engine):
        engine.offer("steps")

    def test_is_offered(engine):
        engine.offer("facts")

    def test_needs_to_know_the_workers(engine, workers):
        assert not workers

    def test_breaks_a_promise(engine):
        expect(False, **FAULT)

    def test_meets_a_capture_error(engine):
        '''The client gives its samples.

        And more.
        '''
        raise ClientError("no tensors")

    def test_fails_by_itself(engine):
        '''Two is three.'''
        assert 2 == 3

    def test_warns(engine):
        import warnings
        warnings.warn("a case may not", UserWarning)

    def test_skips_itself(engine):
        pytest.skip("because")

    def test_known_and_fails(engine):
        expect(False, **FAULT)

    def test_known_and_raises(engine):
        raise ClientError("no tensors")

    def test_known_and_passes(engine):
        pass

    def test_known_and_does_not_apply(engine):
        raise NotApplicableError("not here")

    def test_known_and_fails_by_itself(engine):
        assert 2 == 3

    def test_off_by_what_is_known(engine):
        expect(0.1 <= engine.tolerance, expected="right", got="off by 0.1", cause="unknown", advice="wait")

    def test_off_by_more(engine):
        expect(0.7 <= engine.tolerance, expected="right", got="off by 0.7", cause="a row too late", advice="look")

    def test_off_by_nothing(engine):
        pass

    def test_off_in_another_way(engine):
        raise CaptureError("out of reach")

    def test_down_as_is_known(engine):
        raise CaptureError("no engine comes up")

    def test_down_and_yet_up(engine):
        expect(False, expected="right", got="wrong", cause="a row too late", advice="look")

    @pytest.mark.parametrize("layer", [0, 2, 3, 4])
    def test_of_layers(engine, layer):
        assert layer in engine.spec.layers

    @pytest.mark.ends_engine
    def test_a_comes_last(engine):
        Path(os.environ["NOTES"]).write_text("ends")

    def test_z_comes_before(engine):
        assert not Path(os.environ["NOTES"]).exists()

    def test_without_an_engine(run):
        assert run.layers == (4, 0, 2)
"""
KNOWN = """
    from harness import known_faults

    FAULT = known_faults.KnownFault(
        releases=("0.16.0",), device="cpu", cases=("*::test_known*",), evidence="seen", cause="a kernel is wrong"
    )
    KNOWN = {"releases": ("0.16.0",), "device": "cpu", "evidence": "seen", "cause": "a kernel is wrong"}
    OFF = known_faults.KnownFault(**KNOWN, cases=("*::test_off*",), within=0.5)
    DOWN = known_faults.KnownFault(**KNOWN, cases=("*::test_down*",), boots=False)
    known_faults.load = lambda: (FAULT, OFF, DOWN)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("outcomes")
    suite = flow.write_suite(folder, {"test_outcomes.py": OUTCOMES, "conftest.py": KNOWN})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NOTES", str(folder / "notes"))
        return flow.run(suite, flow.groups("toys:WITH_CHILD"))


@pytest.fixture
def record(ran: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    return ran[1]


def test_findings_exit_1(ran: tuple[int, dict[str, Any]]) -> None:
    code, record = ran
    assert (code, record["verdict"]) == (1, "findings")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("test_captures", "passed"),
        ("test_is_not_offered", "not-applicable"),
        ("test_needs_to_know_the_workers", "not-applicable"),
        ("test_is_offered", "passed"),
        ("test_breaks_a_promise", "failed"),
        ("test_meets_a_capture_error", "failed"),
        ("test_fails_by_itself", "failed"),
        ("test_warns", "failed"),
        ("test_skips_itself", "skipped"),
        ("test_known_and_fails", "known-fault"),
        ("test_known_and_raises", "failed"),
        ("test_known_and_passes", "failed"),
        ("test_known_and_does_not_apply", "not-applicable"),
        ("test_known_and_fails_by_itself", "failed"),
        ("test_off_by_what_is_known", "known-fault"),
        ("test_off_by_more", "failed"),
        ("test_off_by_nothing", "failed"),
        ("test_off_in_another_way", "failed"),
        ("test_down_as_is_known", "known-fault"),
        ("test_down_and_yet_up", "failed"),
        ("test_a_comes_last", "passed"),
        ("test_z_comes_before", "passed"),
        ("test_without_an_engine", "passed"),
    ],
)
def test_outcome(record: dict[str, Any], name: str, outcome: str) -> None:
    assert flow.case(record, name)["outcome"] == outcome, flow.case(record, name)


def test_every_case_has_its_outcome(record: dict[str, Any]) -> None:
    assert len(flow.outcomes(record)) == 24, flow.outcomes(record)
    # And of those about a layer, those about one that is captured.
    layers = [case["id"] for case in record["cases"] if "test_of_layers" in case["id"]]
    assert layers == [f"test_outcomes.py::test_of_layers[toys:WITH_CHILD-mp-tp2-{layer}]" for layer in (0, 2, 4)]
    assert len(record["cases"]) == 24 + 2


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("test_breaks_a_promise", {"expected": "4", "got": "771", "advice": "do not take [0]"}),
        ("test_known_and_fails", {"got": "771", "cause": "a list less"}),
        ("test_off_by_what_is_known", {"got": "off by 0.1"}),
        ("test_off_by_more", {"got": "off by 0.7", "cause": "a row too late"}),
        (
            "test_meets_a_capture_error",
            {"expected": "The client gives its samples.", "got": "ClientError: no tensors"},
        ),
        ("test_fails_by_itself", {"expected": "Two is three.", "cause": "the case itself failed"}),
        ("test_known_and_passes", {"got": "it passed", "advice": "remove the entry from harness/known_faults.toml"}),
    ],
)
def test_finding_says_what_broke(record: dict[str, Any], name: str, finding: dict[str, str]) -> None:
    found = flow.case(record, name)["finding"]
    assert finding.items() <= found.items(), found


def test_finding_of_a_case_that_failed_by_itself_says_how_to_run_it_alone(record: dict[str, Any]) -> None:
    assert "harness check -k test_warns" in flow.case(record, "test_warns")["finding"]["advice"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_is_not_offered", "client toys:WITH_CHILD does not expose steps()"),
        ("test_needs_to_know_the_workers", "client toys:WITH_CHILD does not expose identities()"),
        ("test_known_and_does_not_apply", "not here"),
        ("test_known_and_fails", "a kernel is wrong"),
        ("test_skips_itself", "because"),
    ],
)
def test_reason_says_why_it_did_not_simply_pass(record: dict[str, Any], name: str, reason: str) -> None:
    assert reason in flow.case(record, name)["reason"], flow.case(record, name)


def test_engine_is_opened_once_and_told_of(record: dict[str, Any]) -> None:
    (engine,) = record["engines"]
    assert engine["group"] == "toys:WITH_CHILD-mp-tp2"
    assert engine["spec"]["tensor_parallel_size"] == 2
    assert engine["spec"]["layers"] == [4, 0, 2]
    assert engine["left_behind"] == []
    assert engine["repairs"] == []
    assert engine["timings"]["boot"] > 0


# The engines.


def test_engine_that_does_not_open_fails_every_case_with_its_error(tmp_path: Path) -> None:
    cases = "def test_one(engine): pass\ndef test_two(engine): pass\ndef test_none(run): pass"
    code, record = flow.run(flow.write_suite(tmp_path, {"test_x.py": cases}), flow.groups("toys:REFUSING"))
    assert code == 1
    assert flow.outcomes(record) == {"test_one": "error", "test_two": "error", "test_none": "passed"}
    finding = flow.case(record, "test_one")["finding"]
    assert finding["expected"] == "the engine to open"
    assert finding["got"] == "InvalidLayerError: layer 9 does not exist"


def test_engine_that_dies_fails_the_cases_that_follow(tmp_path: Path) -> None:
    cases = """
        def test_a(engine): pass
        def test_b(engine, prompts): engine.capture(prompts)
        def test_c(engine, prompts): engine.capture(prompts)
    """
    code, record = flow.run(flow.write_suite(tmp_path, {"test_x.py": cases}), flow.groups("toys:EXITING"))
    assert code == 1
    assert flow.outcomes(record) == {"test_a": "passed", "test_b": "failed", "test_c": "failed"}
    assert "WorkerDiedError" in flow.case(record, "test_b")["finding"]["got"]


def test_what_an_engine_repaired_is_told(tmp_path: Path) -> None:
    suite = flow.write_suite(tmp_path, {"test_x.py": "def test_a(engine): pass"})
    _code, record = flow.run(suite, flow.groups("toys:REPAIRED"))
    assert record["engines"][0]["repairs"] == ["a wheel is square", "a door is open"], record["engines"]


def test_what_an_engine_leaves_behind_is_told(tmp_path: Path) -> None:
    impatient = "from harness.remote import RemoteEngine\nRemoteEngine._settle.__defaults__ = (0.1,)"
    suite = flow.write_suite(tmp_path, {"test_x.py": "def test_a(engine): pass", "conftest.py": impatient})
    _code, record = flow.run(suite, flow.groups("toys:LEAVING"))
    assert record["engines"][0]["left_behind"], record["engines"]


def test_segment_that_closing_leaves_is_told_and_removed(tmp_path: Path) -> None:
    cases = """
        from pathlib import Path
        def test_a(engine):
            (segment,) = engine.call("facts")["segments"]
            assert engine.close() == []
            assert engine.left_segments == [segment]
            assert not Path(segment).exists()
    """
    code, record = flow.run(flow.write_suite(tmp_path, {"test_x.py": cases}), flow.groups("toys:LEAVING_A_SEGMENT"))
    assert code == 0, record["cases"]


def test_capture_that_says_it_is_not_applicable_is_a_finding(tmp_path: Path) -> None:
    cases = "def test_a(engine, prompts): engine.capture(prompts)"
    code, record = flow.run(flow.write_suite(tmp_path, {"test_x.py": cases}), flow.groups("toys:NEVER_APPLYING"))
    assert (code, flow.outcomes(record)) == (1, {"test_a": "failed"})
    assert "may not be told as not applicable: not today" in flow.case(record, "test_a")["finding"]["got"]


SHARED = """
    import os
    from pathlib import Path
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_note(engine, number):
        with Path(os.environ["NOTES"]).open("a") as notes:
            print(engine.group.name, os.environ["PYTEST_XDIST_WORKER"], os.getpid(), engine.pid, file=notes)
"""


def test_every_engine_group_runs_on_one_worker_and_boots_once(tmp_path: Path) -> None:
    suite = flow.write_suite(tmp_path, {"test_one.py": SHARED, "test_two.py": SHARED})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
        code, record = flow.run(suite, flow.groups("toys:SOUND", 4), jobs=2)
    places = defaultdict(set)
    for line in (tmp_path / "notes").read_text(encoding="utf-8").splitlines():
        group, *place = line.split()
        places[group].add(tuple(place))
    assert {group: len(seen) for group, seen in places.items()} == dict.fromkeys(places, 1), places
    assert len(places) == 4
    assert {worker for seen in places.values() for worker, *_pids in seen} == {"gw0", "gw1"}
    assert sorted(engine["group"] for engine in record["engines"]) == sorted(places)
    assert len(record["cases"]) == 4 * 4 * 2
    assert code == 0


def test_worker_that_crashes_is_a_finding_and_is_not_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases = """
        import os
        from pathlib import Path
        def test_a(engine): pass
        def test_b(engine):
            if engine.group.setting.name == "mp-tp1":
                with Path(os.environ["NOTES"]).open("a") as notes:
                    print(os.getpid(), file=notes)
                os._exit(1)
    """
    suite = flow.write_suite(tmp_path, {"test_x.py": cases})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
        code, record = flow.run(suite, flow.groups("toys:SOUND", 2), jobs=2)
    assert code == 1
    broken = [case for case in record["cases"] if case["outcome"] != "passed"]
    assert [case["id"] for case in broken] == ["test_x.py::test_b[toys:SOUND-mp-tp1]"], record["cases"]
    assert broken[0]["finding"]["cause"] == "the pytest process that ran it ended"
    assert len((tmp_path / "notes").read_text(encoding="utf-8").splitlines()) == 1
    assert "Traceback" not in capfd.readouterr().err


# What is run.


@pytest.mark.parametrize(
    ("only", "group", "case", "wanted"),
    [
        ({}, "a", "test_x.py::test_y", True),
        ({}, None, "test_x.py::test_y", True),
        ({"a": []}, "a", "test_x.py::test_y[a]", True),
        ({"a": []}, "b", "test_x.py::test_y[b]", False),
        ({"a": []}, None, "test_x.py::test_y", False),
        ({"a": ["test_x.py::test_y"]}, "a", "test_x.py::test_y[a-1]", True),
        ({"a": ["test_x.py::test_y"]}, "a", "test_x.py::test_yy[a]", False),
    ],
)
def test_groups_run_what_they_are_limited_to(
    only: dict[str, list[str]], group: str | None, case: str, wanted: bool
) -> None:
    plain: dict[str, Any] = dict.fromkeys(("release", "device", "dtype", "work", "snapshots"), "")
    run = Run(**plain, groups=(), layers=(), variables={}, repair={}, block_size=32, checkpoints={}, only=only)
    assert run.wants(group, case) is wanted
