"""The ``harness`` command."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import __version__
from .errors import HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness",
        description="Tells whether code that captures hidden states through vLLM works on the vLLM at hand.",
        epilog="exit codes: 0 conforms; 1 findings; 2 usage; 3 the gate refused; 4 no usable vLLM; 5 internal error",
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = commands.add_parser("releases", help="the pinned vLLM releases")
    listing.add_argument("--json", action="store_true", help="print JSON")

    environment = commands.add_parser(
        "environment", help="make a release's environment, or reuse it, and print its interpreter"
    )
    environment.add_argument("release", help="a pinned version, as `harness releases` lists them")
    environment.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    environment.add_argument(
        "--with",
        action="append",
        default=[],
        dest="requirements",
        metavar="REQUIREMENT",
        help="a further requirement, resolved together with vLLM; repeat for several",
    )

    diff = commands.add_parser("diff", help="what changed between two releases, from their wheels and snapshots")
    diff.add_argument("before", help="a pinned version")
    diff.add_argument("after", help="a pinned version")
    form = diff.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")

    probe = commands.add_parser("probe", help="capabilities and adapter of the vLLM installed here; boots nothing")
    probe.add_argument("--json", action="store_true", help="print JSON")

    check = commands.add_parser("check", help="run the cases on the vLLM installed here")
    check.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME",
        help="executor, llm, or module:attribute; repeat for several; both of ours if not given",
    )
    check.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    check.add_argument(
        "--tensor-parallel-size",
        action="append",
        type=int,
        default=[],
        metavar="N",
        help="only these sizes; repeat for several; 1 and 2 if not given",
    )
    check.add_argument(
        "-k", default="", dest="keyword", metavar="EXPRESSION", help="only cases that match, as pytest -k"
    )
    check.add_argument(
        "--evidence",
        type=Path,
        metavar="FILE",
        help="where the record goes; results/<release>-<device>/evidence.json if not given",
    )
    check.add_argument(
        "--update-snapshots", action="store_true", help="write this release's snapshots instead of comparing"
    )
    check.add_argument(
        "-n",
        "--jobs",
        type=int,
        metavar="N",
        help="engines side by side; as cores and memory allow if not given",
    )
    check.add_argument("--json", action="store_true", help="print the evidence; progress goes to stderr")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(arguments)
    command = {
        "releases": _releases,
        "environment": _environment,
        "diff": _diff,
        "probe": _probe,
        "check": _check,
    }[options.command]
    # A background job inherits an ignored SIGINT, and SIGTERM would leave the engines to themselves.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        code = command(options)
        sys.stdout.flush()  # Here, where it can be told that nobody reads on.
    except HarnessError as error:
        print(f"harness {options.command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"harness {options.command}: interrupted; nothing was left running", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(
            f"harness {options.command}: {error}. Free some space, or make it writable, and run it again.",
            file=sys.stderr,
        )
        return HarnessError.exit_code
    except Exception:  # noqa: BLE001 - whatever else it is, it is ours.
        traceback.print_exc()
        print(f"harness {options.command}: this is a fault of the harness; please report it.", file=sys.stderr)
        return HarnessError.exit_code
    else:
        return code


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _releases(options: argparse.Namespace) -> int:
    from . import releases

    rows: list[dict[str, str]] = []
    for release in releases.load():
        row = {"release": release.version, "torch": next(iter(release.builds.values())).torch}
        row |= {device: f"{build.distribution} {build.version}" for device, build in release.builds.items()}
        row |= {device: f"none: {reason}" for device, reason in release.missing.items()}
        row["generation"] = _recorded_generation(release.version)
        row["evidence"] = _last_verdict(release.version)
        rows.append(row)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'release':<9}{'torch':<8}{'cpu':<23}{'cuda':<14}{'generation':<19}last evidence")
    for row in rows:
        cpu = "none" if row["cpu"].startswith("none") else row["cpu"]
        print(
            f"{row['release']:<9}{row['torch']:<8}{cpu:<23}{row['cuda']:<14}{row['generation']:<19}{row['evidence']}"
        )
    for row in rows:
        for device in ("cpu", "cuda"):
            if row[device].startswith("none: "):
                print(f"\n{row['release']} on {device}: {row[device].removeprefix('none: ')}")
    return 0


def _recorded_generation(version: str) -> str:
    """From the release's snapshots; empty if it has none."""
    from . import check

    path = check.suite() / "snapshots" / version / "test_capabilities.json"
    if not path.exists():
        return ""
    recorded: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["test_capabilities"]
    return recorded["generation"]


def _last_verdict(version: str) -> str:
    """Of the evidence that `harness check` wrote below this folder."""
    from . import evidence

    said = []
    for path in sorted(Path("results").glob(f"{version}-*/evidence.json")):
        try:
            record = evidence.read(path)
        except UsageError:
            said.append(f"{path.parent.name}: unreadable")
        else:
            said.append(f"{record['settings']['device']}: {record['verdict']}, {record['started'][:10]}")
    return "; ".join(said)


def _environment(options: argparse.Namespace) -> int:
    from . import environments, releases

    build = releases.find(options.release).build(options.device)
    print(environments.ensure(build, requirements=options.requirements).python)
    return 0


def _diff(options: argparse.Namespace) -> int:
    from . import check, diff, releases, wheels

    before, after = (wheels.surface_of(releases.find(version)) for version in (options.before, options.after))
    snapshots = check.suite() / "snapshots"
    recorded = diff.recorded(snapshots / options.before, snapshots / options.after)
    changes = sorted([*diff.compare(before, after), *recorded], key=lambda change: diff.KINDS.index(change.kind))
    if options.json:
        print(json.dumps([change.as_dict() for change in changes], indent=1))
    elif options.markdown:
        print(diff.markdown(options.before, options.after, changes), end="")
    else:
        print("\n".join(diff.lines(options.before, options.after, changes)))
    return 0


def _probe(options: argparse.Namespace) -> int:
    from . import identity

    facts = identity.environment()
    if options.json:
        print(json.dumps(facts, indent=1))
        return 0
    print(f"vLLM {facts['version']} ({facts['distribution']}), pinned as {facts['release'] or 'nothing'}")
    print(f"adapter: {facts['generation']}")
    for name, value in facts["capabilities"].items():
        print(f"  {name:<34}{'yes' if value else 'no'}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from . import check

    if any(size < 1 for size in options.tensor_parallel_size):
        raise UsageError("--tensor-parallel-size must be 1 or more")
    return check.check(
        check.Options(
            clients=tuple(options.client),
            device=options.device,
            tensor_parallel_sizes=tuple(options.tensor_parallel_size),
            keyword=options.keyword,
            evidence=options.evidence,
            update_snapshots=options.update_snapshots,
            jobs=options.jobs,
            as_json=options.json,
        )
    )
