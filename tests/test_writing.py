from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.writing import write_whole

if TYPE_CHECKING:
    from pathlib import Path


def test_file_is_written_as_others_are_in_a_folder_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.json"
    write_whole(path, "schön\n")
    assert path.read_bytes() == "schön\n".encode()
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_was_there_before_outlives_a_write_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: type[BaseException]
) -> None:
    path = tmp_path / "file.json"
    write_whole(path, "before")

    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(failing, fail)
    with pytest.raises(error):
        write_whole(path, "after")
    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]
