"""The pytest plugin that the cases run under: engines shared by group, findings, known faults, snapshots."""

from __future__ import annotations

import inspect
import json
import os
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from . import case_findings, clients, endings, known_faults, settings, snapshots, sources
from .collector import Collector, case_id
from .errors import CaptureError, NotApplicableError
from .findings import BrokenPromiseError, expect
from .known_faults import KnownFault, KnownFaultError
from .options import DEFAULT_DTYPES
from .progress import Progress
from .run import Run
from .shared_engine import SharedEngine
from .structure import JSON, difference

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from .settings import Group

RUN = pytest.StashKey[Run]()
ENGINES = pytest.StashKey[list[dict[str, Any]]]()
FAULT = pytest.StashKey[KnownFault]()
REFERENCE_TIMEOUT = 180.0
# How long a run may take to end once nobody waits for it.
GONE_SECONDS = 40.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--harness-run", metavar="FILE", help="what this run is about, written by `harness check`")
    parser.addoption("--harness-lifeline", type=int, metavar="FD", help="closes when `harness check` is gone")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tight: runs on the engines that are short of budget, slots and KV blocks")
    config.addinivalue_line("markers", "ends_engine: leaves the engine unusable (see harness/endings.py)")
    given = config.getoption("--harness-run")
    if given is None:
        raise pytest.UsageError("the cases are run by `harness check`, which says what they run on")
    config.stash[RUN] = Run.read(Path(given))
    config.stash[ENGINES] = []
    if not hasattr(config, "workerinput"):  # With xdist, the process that collects the reports.
        work = Path(config.stash[RUN].work)
        config.pluginmanager.register(Collector(work / "results.json", config.stash[ENGINES]))
        config.pluginmanager.register(Progress(group.name for group in config.stash[RUN].groups))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job inherits it ignored.
        threading.Thread(target=_follow_parent, args=(config.getoption("--harness-lifeline"),), daemon=True).start()


def _follow_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # Nothing is ever written: this returns when `harness check` is gone.
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GONE_SECONDS)
    os.killpg(0, signal.SIGKILL)  # The hosts are in sessions of their own, and follow.


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        groups: Sequence[Group] = metafunc.config.stash[RUN].groups
        if metafunc.definition.get_closest_marker("tight") is not None:
            groups = [group for group in groups if group.setting.tight]
        metafunc.parametrize(
            "engine",
            [pytest.param(group, id=group.name, marks=pytest.mark.xdist_group(group.name)) for group in groups],
            indirect=True,
            scope="session",
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    order = {group.name: number for number, group in enumerate(run.groups)}

    def place(item: pytest.Item) -> tuple[int, int]:
        (group,) = item.iter_markers("xdist_group")
        return order.get(group.args[0], len(order)), _turn(item, run) or 0

    items[:] = [item for item in items if _runs(item, run)]
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(settings.NO_ENGINE))
        fault = known_faults.of_case(run.release, run.device, case_id(item.nodeid))
        if fault is not None:
            item.stash[FAULT] = fault
            item.add_marker(pytest.mark.xfail(strict=True, raises=fault.raises, reason=fault.cause))
    items.sort(key=place)


def _runs(item: pytest.Item, run: Run) -> bool:
    if item.get_closest_marker("tight") is not None and not any(group.setting.tight for group in run.groups):
        return False  # pytest makes a skipped case of one that has no engine, and nothing may be skipped.
    if _layer_left_out(item, run):
        return False
    return _turn(item, run) is not None and run.wants(_group(item), case_id(item.nodeid))


def _layer_left_out(item: pytest.Item, run: Run) -> bool:
    """Whether a case is about a layer that its engine does not capture."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return "layer" in params and params["layer"] not in run.layers_of(cast("Group", params["engine"]))


def _turn(item: pytest.Item, run: Run) -> int | None:
    """When a case comes on its engine; None if it does not run there."""
    if item.get_closest_marker("ends_engine") is None:
        return 0
    assert isinstance(item, pytest.Function)
    return endings.turn(item.originalname, cast("Group", item.callspec.params["engine"]), run.groups)


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker is not None else None


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config) -> Run:
    return pytestconfig.stash[RUN]


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest, run: Run, pytestconfig: pytest.Config) -> Iterator[SharedEngine]:
    """The open engine of one group."""
    group = cast("Group", request.param)
    shared = SharedEngine(group, run)
    try:
        shared.open()
        yield shared
    except CaptureError as error:
        raise clients.explained(group.client, shared.spec.repairs, error) from error
    finally:
        left = shared.close()
        pytestconfig.stash[ENGINES].append(
            {
                "group": group.name,
                "spec": asdict(shared.spec),
                "timings": shared.timings,
                "repairs": shared.repairs,
                "left_behind": left,
            }
        )


@pytest.fixture(scope="session")
def workers(engine: SharedEngine) -> list[dict[str, Any]]:
    """Who the workers are, in rank order: asked while the engine answers."""
    engine.offer("identities")
    answers: list[dict[str, Any]] = engine.call("identities")
    return answers


@pytest.fixture(scope="session")
def prompt_sets(run: Run) -> dict[str, list[list[int]]]:
    """The prompts of all cases, by the names of `harness.prompts.sets`."""
    loaded: dict[str, list[list[int]]] = json.loads((Path(run.work) / "prompts.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="session")
def prompts(prompt_sets: dict[str, list[list[int]]]) -> list[list[int]]:
    return prompt_sets["batch"]


@pytest.fixture(scope="session")
def reference(engine: SharedEngine, run: Run) -> dict[str, Any]:
    """Hugging Face's states, ``{"<set>.<prompt>.<layer>": [n, hidden_size]}``, float32 numpy arrays."""
    from safetensors.numpy import load_file

    path = run.reference(engine.group.model_kind)
    failed = path.with_suffix(".failed")
    deadline = time.monotonic() + REFERENCE_TIMEOUT
    while not path.exists():
        if failed.exists():
            raise CaptureError(f"the Hugging Face reference failed:\n{failed.read_text(encoding='utf-8')}")
        if time.monotonic() > deadline:
            raise CaptureError(f"no Hugging Face reference after {REFERENCE_TIMEOUT:g} s")
        time.sleep(0.05)
    loaded: dict[str, Any] = load_file(str(path))
    return loaded


def _model_runner(request: pytest.FixtureRequest) -> str:
    """What runs the model in a case's engine, as far as its client shows it."""
    try:
        workers = request.getfixturevalue("workers")
    except NotApplicableError:
        return ""
    return str(workers[0]["runner"])


@pytest.fixture
def matches(request: pytest.FixtureRequest, snapshot: Any, run: Run) -> Callable[..., None]:
    """``matches(structure, cause=..., advice=...)``: equal to this release's snapshot, or a finding.

    Somebody else's client, and another checkpoint's engine, are held to what ours recorded under the same setting
    and, where there are such, of the same model runner.
    """
    group = request.node.callspec.params.get("engine") if hasattr(request.node, "callspec") else None

    def match(structure: JSON, *, cause: str, advice: str) -> None:
        ours = settings.recorded(group) if group is not None else None
        if group is not None and ours is None:
            raise NotApplicableError(f"no structure is recorded for {group.setting.name}")
        folder = Path(run.snapshots)
        if ours is not None and settings.on_request(ours):
            folder = snapshots.of_setting(folder, ours.setting.name)
        elif group is not None and ours != group:
            folder = sources.of_runner(folder, lambda: _model_runner(request))
        name = request.node.name
        if group is not None:
            structure = snapshots.as_recorded(structure, run.dtype, DEFAULT_DTYPES[run.device])
        if group is not None and ours is not None and ours != group:
            name = name.replace(f"[{group.name}", f"[{ours.name}")
            if request.config.option.update_snapshots:
                raise NotApplicableError(f"{name} is being written: compared in the next run")
        there, stored = snapshots.stored(folder, request.path.stem, name)
        # Not for another's record: once syrupy knows a folder, whatever nobody asks for in it is unused.
        asked = snapshot.use_extension(snapshots.in_folder(folder)) if ours == group else None
        if (there and not difference(stored, structure)) if asked is None else asked == structure:
            return
        if not there:
            expect(
                False,
                expected=f"a snapshot of {name} in {folder.name}/{request.path.stem}.json",
                got="there is none",
                cause="a new release, a new case, or a vLLM that is not pinned",
                advice="run `harness check --update-snapshots`, read the new file, and commit it",
            )
        expect(
            False,
            expected=f"the structure of {name} in {folder.name}/{request.path.stem}.json",
            got="\n".join(difference(stored, structure)),
            cause=cause,
            advice=advice,
        )

    return match


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Where a known fault has states off by so much, a case fails by that, and by no more: it is run again for it."""
    try:
        return (yield)
    except BrokenPromiseError as error:
        fault = pyfuncitem.stash.get(FAULT, None)
        if fault is None or not fault.within:
            raise
        case: Any = pyfuncitem.obj
        with cast("SharedEngine", pyfuncitem.funcargs["engine"]).tolerating(fault.within):
            case(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(case).parameters})
        raise KnownFaultError(error.finding) from error


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, NotApplicableError):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"not applicable: {error}")
        report.user_properties.append(("not-applicable", str(error)))
    elif report.failed or hasattr(report, "wasxfail"):
        finding = case_findings.of_report(item, error, report)
        report.user_properties.append(("finding", json.dumps(finding.as_dict())))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["harness_engines"] = session.config.stash[ENGINES]
