"""A wheel on a web server, read in pieces: its Python files are a hundredth of it."""

from __future__ import annotations

import io
import re
import urllib.error
import urllib.request
import zipfile
from typing import TYPE_CHECKING

from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIMEOUT_SECONDS = 60.0
# More than a module of vLLM has, compressed: one request a member.
_PIECE = 128 * 1024


def get(url: str, **headers: str) -> HTTPResponse:
    """Ask a web server.

    Raises:
        EnvironmentUnusableError: it is no web address, or there is no answer.
    """
    if not url.startswith(("http://", "https://")):
        raise EnvironmentUnusableError(f"{url} is no web address. Give one that begins with https://")
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was looked at.
    try:
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310 - as above.
    except (urllib.error.URLError, OSError) as error:
        raise EnvironmentUnusableError(
            f"{url} cannot be read: {error}. Check the address and the network."
        ) from error
    return answer


def open_wheel(url: str) -> zipfile.ZipFile:
    """A wheel at an address; only what is read of it is fetched, if the server can do that.

    Raises:
        EnvironmentUnusableError: it cannot be read, or is no wheel.
    """
    try:
        return zipfile.ZipFile(_open(url))
    except zipfile.BadZipFile as error:
        raise EnvironmentUnusableError(f"{url} is no wheel: {error}") from error


def _open(url: str) -> io.BufferedIOBase:
    with get(url, Range="bytes=0-0") as answer:
        size = re.fullmatch(r"bytes 0-0/(\d+)", answer.headers.get("Content-Range", ""))
        if size is None:
            return io.BytesIO(answer.read())  # All of it came.
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
        with get(self._url, Range=f"bytes={self._place}-{last}") as answer:
            got = answer.read()
        buffer[: len(got)] = got
        self._place += len(got)
        return len(got)
