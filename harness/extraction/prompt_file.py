"""A file of prompts, JSONL, a sample a line: checked as a whole before anything boots, then read line by line.

What is kept of a line is where it is, how many tokens it has, and what they and its mask hash to: 32 bytes, 32 MB for
a million prompts. Lines are parsed again, and texts tokenized again, when they are extracted.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from harness.errors import UsageError

from .jobs import Job
from .prompt_line import BadLineError, Line, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from .prompt_line import Tokenize

DIGEST_BYTES = 16


def _check(loss_mask: Sequence[int] | None) -> int:
    """What a mask's change is noticed by; of no mask, 0."""
    return zlib.crc32(bytes(loss_mask or ()))


def digest(token_ids: array[int]) -> bytes:
    """What a prompt's ids hash to: of SHA-256 over them as little-endian int64, the first `DIGEST_BYTES`."""
    return hashlib.sha256(token_ids).digest()[:DIGEST_BYTES]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the model takes; ``advice`` ends the sentence about a prompt that is too long."""

    vocabulary: int
    longest: int
    advice: str


class PromptFile:
    """The index of a file that has been checked.

    ``sha256`` is the file's own; ``samples_sha256`` is over every sample's ids and mask in turn, however the file
    writes them down. ``tokens`` are how many each sample has.
    """

    def __init__(self, path: Path, tokenize: Tokenize, limits: Limits) -> None:
        """Read and check all of it.

        Raises:
            UsageError: a line is no sample that the model takes, and is named; or there is none; or the file cannot
                be read.
        """
        self.path = path
        self._tokenize = tokenize
        self._offsets = array("Q", [0])
        self.tokens = array("I")
        self._digests = bytearray()
        self._masks = array("I")
        self.masked = False
        whole, samples = hashlib.sha256(), hashlib.sha256()
        try:
            with path.open("rb") as file:
                for number, text in enumerate(file, 1):
                    whole.update(text)
                    try:
                        line = self._checked(text, number, limits)
                    except BadLineError as error:
                        raise UsageError(f"{path}:{number} {error}.") from error
                    self._offsets.append(self._offsets[-1] + len(text))
                    self.tokens.append(len(line.token_ids))
                    self._digests += digest(array("q", line.token_ids))
                    self._masks.append(_check(line.loss_mask))
                    samples.update(self._digests[-DIGEST_BYTES:])
                    samples.update(bytes(line.loss_mask or ()))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}. Give a file of prompts with --prompts.") from error
        if not self.tokens:
            raise UsageError(f"{path} is empty. Give a file with a sample a line.")
        self.sha256, self.samples_sha256 = whole.hexdigest(), samples.hexdigest()

    def __len__(self) -> int:
        return len(self.tokens)

    def digest(self, index: int) -> bytes:
        """What a sample's ids hash to; see `digest`."""
        return bytes(self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])

    def jobs(self, indices: Iterable[int]) -> Iterator[Job]:
        """Samples by their 0-based line, read one at a time.

        Raises:
            UsageError: the file is not what it was when it was checked.
        """
        try:
            with self.path.open("rb") as file:
                for index in indices:
                    yield self._job(file, index)
        except OSError as error:
            raise UsageError(
                f"{self.path}: {error.strerror}. Put it back, and run the same command again."
            ) from error

    def _job(self, file: BinaryIO, index: int) -> Job:
        file.seek(self._offsets[index])
        text = file.read(self._offsets[index + 1] - self._offsets[index])
        try:
            line = parse(text, self._tokenize)
            token_ids = array("q", line.token_ids)
            same = digest(token_ids) == self.digest(index) and _check(line.loss_mask) == self._masks[index]
        except (BadLineError, OverflowError):
            same = False
        if not same:
            raise UsageError(
                f"{self.path}:{index + 1} was changed while this ran. Put it back, and run the same command again."
            )
        mask = None if line.loss_mask is None else array("q", line.loss_mask)
        return Job(index=index, token_ids=token_ids, loss_mask=mask)

    def _checked(self, text: bytes, number: int, limits: Limits) -> Line:
        line = parse(text, self._tokenize)
        for token in (min(line.token_ids), max(line.token_ids)):
            if not 0 <= token < limits.vocabulary:
                raise BadLineError(f"holds token id {token}; the model's vocabulary is 0 to {limits.vocabulary - 1}")
        if len(line.token_ids) > limits.longest:
            raise BadLineError(f"has {len(line.token_ids)} tokens; {limits.longest} fit. {limits.advice}")
        has = line.loss_mask is not None
        if number == 1:
            self.masked = has
        if has != self.masked:
            raise BadLineError(
                f"has {'a' if has else 'no'} loss_mask, and line 1 has {'one' if self.masked else 'none'}. Give it "
                f"on every line or on none"
            )
        return line
