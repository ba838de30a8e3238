"""Lines for a person, on the stream that a command leaves for them."""

from __future__ import annotations

import sys


def say(line: str, *, as_json: bool) -> None:
    """Print a line at once; beside the JSON, where that is what the command prints."""
    print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
