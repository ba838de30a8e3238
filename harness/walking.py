"""The pytest plugin of the repair cases: one walk a repairable client, shared by the cases that look at it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from . import clients
from .errors import CaptureError
from .plugin import ENGINES, RUN
from .remote import RemoteEngine
from .walk import Walk, walk

if TYPE_CHECKING:
    from .clients.contract import Repair, RepairableClient
    from .run import Run
    from .settings import Group

# A boot, two captures, and an end.
REHEARSAL_TIMEOUT = 180.0


def _repairs(client: str) -> tuple[Repair, ...]:
    return cast("RepairableClient", clients.load(client)).repairs


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "walked" not in metafunc.fixturenames:
        return
    walks = metafunc.config.stash[RUN].walks
    marks = {group: pytest.mark.xdist_group(_name(group)) for group in walks}
    if "repair" in metafunc.fixturenames:
        rows: list[tuple[Any, ...]] = [(group, repair) for group in walks for repair in _repairs(group.client)]
        metafunc.parametrize(
            ("walked", "repair"),
            [pytest.param(*row, id=f"{_name(row[0])}-{row[1].name}", marks=marks[row[0]]) for row in rows],
            indirect=["walked"],
            scope="session",
        )
    else:
        metafunc.parametrize(
            "walked",
            [pytest.param(group, id=_name(group), marks=marks[group]) for group in walks],
            indirect=True,
            scope="session",
        )


def _name(group: Group) -> str:
    return f"{group.name}-walk"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[RUN].walks:  # Without a repairable client there is nothing to be not applicable.
        items[:] = [item for item in items if "walked" not in getattr(item, "fixturenames", ())]


@pytest.fixture(scope="session")
def walked(request: pytest.FixtureRequest, run: Run, prompts: list[list[int]], pytestconfig: pytest.Config) -> Walk:
    """What a client met on its way to two captures. Its engines are opened in one process, one after the other."""
    group = cast("Group", request.param)
    spec = run.spec(group)
    hosts: list[RemoteEngine] = []
    given = [*prompts[:3], max(prompts, key=len) * 3]  # The last fills a block also where blocks have 128 tokens.

    def attempt(repairs: tuple[str, ...]) -> str:
        if not hosts or hosts[-1].closed:
            log = run.logs / f"{_name(group)}-{len(hosts)}.log"
            hosts.append(RemoteEngine(group.client, spec, log=log, variables=run.variables))
        try:
            wanted = replace(spec, repairs=repairs)
            hosts[-1].ask("rehearse", wanted, given, timeout=REHEARSAL_TIMEOUT)
        except CaptureError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    walk_of_client: Walk | None = None
    left: list[int] = []
    try:
        walk_of_client = walk(attempt, _repairs(group.client), spec.repairs)
    finally:
        for host in hosts:
            left += host.close()
        applied = walk_of_client.applied if walk_of_client else spec.repairs
        pytestconfig.stash[ENGINES].append(
            {
                "group": _name(group),
                "spec": asdict(replace(spec, repairs=applied)),
                "timings": {},
                "repairs": list(applied),
                "left_behind": left,
            }
        )
    return walk_of_client
