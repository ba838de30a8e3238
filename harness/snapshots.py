"""One readable JSON file of snapshots a case file and release, kept by syrupy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from syrupy.data import Snapshot, SnapshotCollection
from syrupy.extensions.base import AbstractSyrupyExtension
from syrupy.utils import exclusive_file_lock

from .writing import write_whole

if TYPE_CHECKING:
    from syrupy.location import PyTestLocation


def _read(location: str) -> dict[str, Any]:
    path = Path(location)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _write(location: str, snapshots: dict[str, Any]) -> None:
    text = json.dumps(dict(sorted(snapshots.items())), indent=1, ensure_ascii=False)
    write_whole(Path(location), text + "\n")


class ReleaseSnapshots(AbstractSyrupyExtension):
    """``snapshots/<release>/<case file>.json``: names to values, sorted, so that two releases can be diffed."""

    file_extension = "json"
    folder: ClassVar[Path]

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:  # noqa: ARG003 - the signature is syrupy's.
        return str(cls.folder)

    def serialize(self, data: Any, **_filters: Any) -> str:
        return json.dumps(data, indent=1, ensure_ascii=False)

    def read_snapshot_collection(self, *, snapshot_location: str) -> SnapshotCollection:
        collection = SnapshotCollection(location=snapshot_location)
        for name, value in _read(snapshot_location).items():
            collection.add(Snapshot(name=name, data=self.serialize(value)))
        return collection

    def read_snapshot_data_from_location(
        self,
        *,
        snapshot_location: str,
        snapshot_name: str,
        session_id: str,
    ) -> str | None:
        snapshots = _read(snapshot_location)
        return self.serialize(snapshots[snapshot_name]) if snapshot_name in snapshots else None

    @classmethod
    def write_snapshot_collection(
        cls,
        *,
        snapshot_collection: SnapshotCollection,
        name_order: dict[str, int] | None = None,  # noqa: ARG003 - the signature is syrupy's.
    ) -> None:
        location = snapshot_collection.location
        new = {snapshot.name: json.loads(str(snapshot.data)) for snapshot in snapshot_collection}
        with exclusive_file_lock(location):
            _write(location, {**_read(location), **new})

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        with exclusive_file_lock(snapshot_location):
            left = {name: value for name, value in _read(snapshot_location).items() if name not in snapshot_names}
            if left:
                _write(snapshot_location, left)
            else:
                Path(snapshot_location).unlink(missing_ok=True)


def in_folder(folder: Path) -> type[ReleaseSnapshots]:
    """The extension for one release's folder."""
    return type("ReleaseSnapshots", (ReleaseSnapshots,), {"folder": folder})


def as_recorded(structure: Any, dtype: str, recorded: str) -> Any:
    """A structure seen in one dtype as it is recorded in another: the names of the two change places."""
    places = {dtype: recorded, recorded: dtype}
    names = re.compile(rf"\b({dtype}|{recorded})\b")
    return json.loads(names.sub(lambda name: places[name[0]], json.dumps(structure)))


def of_setting(folder: Path, setting: str) -> Path:
    """Where the snapshots of a setting are that is opened only on request: ``snapshots/<setting>/<release>``."""
    return folder.parent / setting / folder.name


def stored(folder: Path, case_file: str, name: str) -> tuple[bool, Any]:
    """Whether a snapshot file holds a name, and what; a recorded null is not a missing snapshot."""
    held = _read(str(folder / f"{case_file}.json"))
    return name in held, held.get(name)
