"""Toy clients, opened as ``toys:NAME``: there is no vLLM behind them, and each misbehaves in one way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from multiprocessing import resource_tracker, shared_memory
from typing import TYPE_CHECKING, Any, NoReturn, cast

from harness.clients.contract import EngineSpec, Repair, Sample
from harness.errors import CaptureError, ClientError, InvalidLayerError, NotApplicableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SLEEPER = "import signal; signal.pause()"
LAST_WORDS = "the toy's last words"
EXIT_CODE = 3


class UnlistedError(CaptureError):
    """One that the harness does not know by name."""


@dataclass(frozen=True)
class Rows:
    """As much of a tensor as `structure.describe` looks at."""

    shape: tuple[int, ...]
    dtype: str = "torch.float32"


class Engine:
    """A sound one."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.children: list[subprocess.Popen[bytes]] = []
        self.segments: list[shared_memory.SharedMemory] = []

    def start_child(self) -> None:
        self.children.append(subprocess.Popen([sys.executable, "-c", SLEEPER]))

    def map_segment(self) -> None:
        segment = shared_memory.SharedMemory(create=True, size=4096)
        # Nobody but the harness may unlink it.
        resource_tracker.unregister(f"/{segment.name}", "shared_memory")
        self.segments.append(segment)

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        return [
            Sample(
                token_ids=list(prompt),
                states={layer: cast("Any", Rows((len(prompt), 8))) for layer in self.spec.layers},
            )
            for prompt in prompts
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "pids": [os.getpid(), *(child.pid for child in self.children)],
            "segments": [f"/dev/shm/{segment.name}" for segment in self.segments],  # noqa: S108
        }

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
        for segment in self.segments:
            segment.close()
            os.unlink(f"/dev/shm/{segment.name}")  # noqa: PTH108, S108


class Speaking(Engine):
    def say(self, word: str) -> None:
        print(f"{word} on stdout", flush=True)
        print(f"{word} on stderr", file=sys.stderr, flush=True)


class OnRunner(Engine):
    """One that shows which of vLLM's model runners it has."""

    module = ""

    def identities(self) -> list[dict[str, Any]]:
        return [{"pid": os.getpid(), "rank": 0, "runner": f"{self.module}.GPUModelRunner"}]


class OnV1(OnRunner):
    module = "vllm.v1.worker.gpu_model_runner"


class OnV2(OnRunner):
    module = "vllm.v1.worker.gpu.model_runner"


class WithChild(Engine):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.start_child()
        self.map_segment()


class Repaired(Engine):
    """One that works here only because it says what it changed."""

    repairs = ("a wheel is square", "a door is open")


class Leaving(WithChild):
    def close(self) -> None:
        """Its child and its segment stay."""


class NeverClosing(WithChild):
    def close(self) -> NoReturn:
        print(LAST_WORDS, flush=True)
        threading.Event().wait()
        raise AssertionError("it hangs")


class LeavingASegment(Engine):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.map_segment()

    def close(self) -> None:
        """Its segment stays."""


class NeverApplying(Engine):
    def capture(self, prompts: Sequence[Sequence[int]]) -> NoReturn:
        raise NotApplicableError("not today")


class Hanging(WithChild):
    def capture(self, prompts: Sequence[Sequence[int]]) -> NoReturn:
        threading.Event().wait()
        raise AssertionError("it hangs")


class Exiting(WithChild):
    def capture(self, prompts: Sequence[Sequence[int]]) -> NoReturn:
        print(LAST_WORDS, flush=True)
        os._exit(EXIT_CODE)


class Raising(Engine):
    def capture(self, prompts: Sequence[Sequence[int]]) -> NoReturn:
        raise UnlistedError("not on the list")


class Unsendable(Engine):
    def capture(self, prompts: Sequence[Sequence[int]]) -> Any:
        return lambda: prompts


@dataclass(frozen=True)
class Toy:
    """A client that opens what ``make`` makes."""

    make: Callable[[EngineSpec], Any]
    name: str = "toy"

    def refuses(self, _spec: EngineSpec) -> str | None:
        return None

    def open(self, spec: EngineSpec) -> Any:
        return self.make(spec)


def _refuse(_spec: EngineSpec) -> NoReturn:
    raise InvalidLayerError("layer 9 does not exist")


def _fail(_spec: EngineSpec) -> NoReturn:
    raise ZeroDivisionError("by zero")


class Repairable(Toy):
    """A client that opens only with two repairs in place."""

    def __init__(self, opens_with: tuple[str, ...], asks_for: tuple[str, ...] = ("wheel", "wiring")) -> None:
        super().__init__(Engine)
        self._opens_with = opens_with
        self._asks_for = asks_for

    @property
    def repairs(self) -> tuple[Repair, ...]:
        return REPAIRS

    def opens_with(self, _device: str) -> tuple[str, ...]:
        return self._opens_with

    def open(self, spec: EngineSpec) -> Any:
        for name in self._asks_for:
            if name == "wiring" and "shortcut" in spec.repairs:
                raise ClientError("sparks")
            if name not in spec.repairs:
                raise ClientError(f"no {name}")
        return super().open(spec)


def _repair(name: str, symptom: str, instead_of: str = "") -> Repair:
    return Repair(
        name=name,
        symptom=symptom,
        cause=f"the {name} is gone",
        advice=f"mount the {name}",
        needed=lambda _surface: False,
        patch=lambda _code: None,
        instead_of=instead_of,
    )


REPAIRS = (
    _repair("wheel", "no wheel"),
    _repair("wiring", "no wiring"),
    _repair("shortcut", "sparks", instead_of="wiring"),
    _repair("unneeded", "no such thing"),
)

SOUND = Toy(Engine)
ON_V1 = Toy(OnV1)
ON_V2 = Toy(OnV2)
SPEAKING = Toy(Speaking)
BROKEN = Repairable(("stand-in",))
PUZZLING = Repairable(("stand-in",), ("wheel", "nobody knows what"))
MENDED = Repairable(("stand-in", "wheel", "wiring"))
WITH_CHILD = Toy(WithChild)
REPAIRED = Toy(Repaired)
LEAVING = Toy(Leaving)
NEVER_CLOSING = Toy(NeverClosing)
LEAVING_A_SEGMENT = Toy(LeavingASegment)
NEVER_APPLYING = Toy(NeverApplying)
HANGING = Toy(Hanging)
EXITING = Toy(Exiting)
RAISING = Toy(Raising)
UNSENDABLE = Toy(Unsendable)
REFUSING = Toy(_refuse)
FAILING = Toy(_fail)
NO_CLIENT = object()
