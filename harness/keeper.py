"""Runs one command as a session of its own, which does not outlive whoever started it.

``python -m harness.keeper LIFELINE_FD COMMAND...``, with the command's environment variables as JSON on stdin. The
exit status is the command's, and 128 + n if signal n ended it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from . import processes


def main(arguments: list[str]) -> int:
    lifeline, *command = arguments
    processes.follow(int(lifeline))
    # ^C is for the command, which then ends in its own way. Handled, not ignored: it would inherit that.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    variables = json.load(sys.stdin)
    status = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, check=False).returncode
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
