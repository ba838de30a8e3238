"""A wheel on a web server, read in pieces: its Python files are a hundredth of it."""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

TIMEOUT_SECONDS = 60.0
# More than a module of vLLM has, compressed: one request a member.
_PIECE = 128 * 1024
_PARTIAL = 206


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a web server said, all of it; ``url`` is where that was in the end."""

    url: str
    status: int
    headers: Message
    body: bytes


def get(url: str, **headers: str) -> Answer:
    """Ask a web server, and read the answer.

    Raises:
        EnvironmentUnusableError: it is no web address, there is no answer, or it breaks off.
    """
    if not url.startswith(("http://", "https://")):
        raise EnvironmentUnusableError(f"{url} is no web address. Give one that begins with https://")
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was looked at.
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above.
            return Answer(url=answer.url, status=answer.status, headers=answer.headers, body=answer.read())
    # ValueError: an address that urllib takes apart, and cannot. The rest may come at any byte of an answer.
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = str(error) or type(error).__name__
        raise EnvironmentUnusableError(f"{url} cannot be read: {said}. Check the address and the network.") from error


@contextlib.contextmanager
def open_wheel(url: str) -> Iterator[zipfile.ZipFile]:
    """A wheel at an address; only what is read of it is fetched, if the server can do that.

    Raises:
        EnvironmentUnusableError: it cannot be read, or is no wheel; also of what is read of it later.
    """
    try:
        with zipfile.ZipFile(_open(url)) as wheel:
            yield wheel
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise EnvironmentUnusableError(f"{url} is no wheel that can be read: {error}. Give another build.") from error


def _open(url: str) -> io.BufferedIOBase:
    answer = get(url, Range="bytes=0-0")
    size = re.fullmatch(r"bytes 0-0/(\d+)", answer.headers.get("Content-Range", ""))
    if answer.status != _PARTIAL or size is None:
        return io.BytesIO(answer.body)  # All of it came.
    return io.BufferedReader(_Pieces(url, int(size[1])), _PIECE)


class _Pieces(io.RawIOBase):
    """A file of which every read is a request."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        last = min(self._place + len(buffer), self._size) - 1
        if last < self._place:
            return 0
        answer = get(self._url, Range=f"bytes={self._place}-{last}")
        asked, got = last + 1 - self._place, len(answer.body)
        if answer.status != _PARTIAL or got != asked:
            raise EnvironmentUnusableError(
                f"{self._url} cannot be read in pieces: {asked} bytes were asked for, and {got} came. Try again."
            )
        buffer[:got] = answer.body
        self._place += got
        return got
