"""A pytest plugin that says which snapshots no case asked for.

They fail a run (`conducting`), and syrupy tells of them in pytest's summary, which the suite's own one replaces.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(trylast=True)  # syrupy has found them by then.
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config: Any = session.config
    if hasattr(config, "workerinput") or config.option.update_snapshots:
        return
    report = config._syrupy.report  # noqa: SLF001 - syrupy has no other way to it.
    # Where a case failed, or none was reached, what it would have asked for says nothing.
    if exitstatus or report.disable_unused_snapshots:
        return
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    for collection in report.unused:
        path = Path(collection.location)
        names = ", ".join(sorted(snapshot.name for snapshot in collection))
        terminal.ensure_newline()
        terminal.write_line(
            f"no case asked for these snapshots of {path.parent.name}/{path.name}, so the run is no pass: {names}. "
            f"Run `harness check --update-snapshots`, which removes them, if the cases are meant to be gone."
        )
