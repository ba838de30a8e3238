from __future__ import annotations

from types import SimpleNamespace

import pytest
from snapshots_on_disk import capabilities_of, recorded
from test_probing import NO_EOS, OLDEST, TWO_PHASE

from harness import releases
from harness.adapters import shims
from harness.capabilities import Capabilities

CONFIG = SimpleNamespace(cache_config=SimpleNamespace(block_size=32))


def test_every_release_with_a_cpu_build_has_recorded_capabilities() -> None:
    missing = [release.version for release in releases.with_build("cpu") if release.version not in recorded()]
    assert not missing, f"run `harness check --update-snapshots` on {', '.join(missing)}"


@pytest.mark.parametrize("shim", shims.SHIMS, ids=lambda shim: shim.name)
def test_shim_is_needed_by_a_pinned_release(shim: shims.Shim) -> None:
    pinned = {release.version for release in releases.load()}
    needing = [
        version for version, row in recorded().items() if version in pinned and shim.needed(capabilities_of(row))
    ]
    assert needing, f"no pinned release needs the shim {shim.name!r}: remove it from harness/adapters/shims.py"


def test_every_shim_is_listed() -> None:
    defined = [value for value in vars(shims).values() if isinstance(value, shims.Shim)]
    assert list(shims.SHIMS) == defined
    assert len({shim.name for shim in shims.SHIMS}) == len(shims.SHIMS)


def test_eos_token_id_is_given_where_it_is_taken() -> None:
    assert shims.request_arguments(Capabilities(**TWO_PHASE)) == {"eos_token_id": None}
    assert shims.request_arguments(Capabilities(**NO_EOS)) == {}


def test_block_size_is_given_as_the_scheduler_takes_it() -> None:
    assert shims.scheduler_block_sizes(Capabilities(**OLDEST), CONFIG, None) == {}
    assert shims.scheduler_block_sizes(Capabilities(**TWO_PHASE), CONFIG, None) == {"block_size": 32}
