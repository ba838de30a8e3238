"""One exception class per exit code; the message says what to do next."""

from __future__ import annotations

from typing import ClassVar

OK = 0
FINDINGS = 1
INTERRUPTED = 130
# As a shell reports SIGPIPE: whoever read the output had gone before the result was known.
UNREAD = 141


class HarnessError(Exception):
    """Internal error: a fault of the harness itself."""

    exit_code: ClassVar[int] = 5


class UsageError(HarnessError):
    """The command line, or a file that the user wrote, is wrong."""

    exit_code = 2


class NoCommandError(UsageError):
    """A command that the user gave cannot be found; in another release's environment it may be there."""


class GateRefusedError(HarnessError):
    """Evidence is missing, stale or incomplete."""

    exit_code = 3


class EnvironmentUnusableError(HarnessError):
    """The environment could not be built, holds no usable vLLM, or its disk takes no more."""

    exit_code = 4


class CannotTestError(HarnessError):
    """An end of a bisection cannot be tested."""

    exit_code = 125


class CaptureError(HarnessError):
    """Base of what a client raises; a case that meets one turns it into a finding."""

    exit_code = FINDINGS


class InvalidLayerError(CaptureError):
    """A layer id that the model does not have, or that is asked for twice."""


class InvalidPromptError(CaptureError):
    """An empty prompt, one longer than the model, or a token id outside the vocabulary."""


class CheckpointError(CaptureError):
    """The checkpoint is missing, truncated or not one vLLM can load."""


class WorkerDiedError(CaptureError):
    """A worker process ended while it was still needed."""


class WorkerFailedError(CaptureError):
    """A worker raised; its message is in the text."""


class ReplyTimeoutError(CaptureError):
    """No reply within the time the engine spec allows."""


class EngineOutOfStepError(CaptureError):
    """Replies no longer belong to the calls, or a capture was left half done: open a new engine."""


class LostTensorsError(CaptureError):
    """A reply came back without its tensors: serialization between processes dropped them."""


class IncompleteSampleError(CaptureError):
    """Rows of a prompt are missing, doubled or belong to another prompt."""


class DamagedStatesError(CaptureError):
    """A row of states is not finite, or is empty."""


class DeliveryError(CaptureError):
    """States cannot be written, or those there cannot be read: a full disk, a folder that is not writable."""

    exit_code = 4


class NotApplicableError(CaptureError):
    """The client does not expose what a case needs; the case is reported as not applicable."""


class ClientError(CaptureError):
    """Anything else that a client raised."""


CAPTURE_ERRORS: dict[str, type[CaptureError]] = {
    kind.__name__: kind
    for kind in (
        InvalidLayerError,
        InvalidPromptError,
        CheckpointError,
        WorkerDiedError,
        WorkerFailedError,
        ReplyTimeoutError,
        EngineOutOfStepError,
        LostTensorsError,
        IncompleteSampleError,
        DamagedStatesError,
        DeliveryError,
        NotApplicableError,
        ClientError,
    )
}
