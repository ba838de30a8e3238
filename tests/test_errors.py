from __future__ import annotations

import pytest

from harness import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.CaptureError, 1),
        (errors.UsageError, 2),
        (errors.GateRefusedError, 3),
        (errors.EnvironmentUnusableError, 4),
        (errors.HarnessError, 5),
    ],
)
def test_exit_code_of_each_class(kind: type[errors.HarnessError], code: int) -> None:
    assert kind.exit_code == code


def test_every_capture_error_can_cross_from_the_host() -> None:
    defined = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CaptureError) and kind is not errors.CaptureError
    }
    assert defined == errors.CAPTURE_ERRORS
