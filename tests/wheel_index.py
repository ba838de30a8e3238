"""A package index on loopback: wheels of small vLLMs, listed in either form, served in pieces if asked."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
import threading
import time
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = "application/vnd.pypi.simple.v1+json"


def wheel(folder: Path, name: str, modules: dict[str, str], *, requires: tuple[str, ...] = ()) -> Path:
    """A wheel file of this name, with modules below ``vllm/`` and something big that nobody needs."""
    distribution, version = name.split("-")[:2]
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for module, source in modules.items():
            archive.writestr(f"vllm/{module}.py", source)
        archive.writestr("vllm/_C.abi3.so", bytes(range(256)) * 8192)
        metadata = [
            "Metadata-Version: 2.4",
            f"Name: {distribution}",
            f"Version: {version}",
            *(f"Requires-Dist: {requirement}" for requirement in requires),
        ]
        archive.writestr(f"{distribution}-{version}.dist-info/METADATA", "\n".join(metadata) + "\n")
    return path


@dataclass
class Index:
    """What is served, and what was asked for: paths with the range in bytes, if one was."""

    folder: Path
    form: str = "html"
    ranges: bool = True
    uploaded: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0
    url: str = ""
    fault: str = ""
    """What is wrong with every answer, or with those in pieces after the first of a file."""

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.whl"))

    def piece(self, body: bytes, first: int, last: int) -> tuple[int, bytes]:
        """The status and the bytes of an answer in pieces."""
        part = body[first : last + 1]
        wrong = {"longer": (200, body), "shorter": (206, part[1:]), "other bytes": (206, bytes(len(part)))}
        return wrong.get(self.fault, (206, part)) if last > 0 else (206, part)

    def torn(self, body: bytes) -> bytes:
        """What is sent of an answer that said how long it is."""
        if self.fault == "hangs":
            time.sleep(1.0)
        return body[: len(body) // 2] if self.fault in ("cut short", "hangs") else body

    def page(self) -> tuple[str, bytes]:
        if self.form == "html":
            links = [
                f'<a href="{path.name.replace("+", "%2B")}" data-requires-python="&gt;=3.10">x</a>'
                for path in self.files()
            ]
            return "text/html; charset=utf-8", f"<html><body>{''.join(links)}<a>no link</a></body></html>".encode()
        rows: list[dict[str, Any]] = [
            {
                "filename": path.name,
                "url": f"/files/{path.name}",
                "hashes": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
                "requires-python": ">=3.10",
                **({"upload-time": self.uploaded[path.name]} if path.name in self.uploaded else {}),
            }
            for path in self.files()
        ]
        return JSON, json.dumps({"files": rows}).encode()


@contextlib.contextmanager
def serve(index: Index) -> Iterator[Index]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            index.asked.append((self.path, wanted))
            name = self.path.rpartition("/")[2].replace("%2B", "+")
            if not name:
                kind, body = index.page()
                self._send(200, body, kind)
            elif not (index.folder / name).exists():
                self._send(404, b"", "text/plain")
            else:
                body = (index.folder / name).read_bytes()
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted or "") if index.ranges else None
                if asked is None:
                    self._send(200, body, "application/octet-stream")
                else:
                    first, last = int(asked[1]), int(asked[2])
                    status, part = index.piece(body, first, last)
                    self._send(status, part, "application/octet-stream", f"bytes {first}-{last}/{len(body)}")

        def _send(self, status: int, body: bytes, kind: str, content_range: str = "") -> None:
            index.sent += len(body)
            if index.fault == "no HTTP":
                self.wfile.write(b"what?\r\n\r\n")
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            self.wfile.write(index.torn(body))

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the base's.
            """Not on stderr."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}/vllm/"
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
