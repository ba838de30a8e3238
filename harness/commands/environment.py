"""``harness environment``: the interpreter of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import arguments

if TYPE_CHECKING:
    import argparse

HELP = "make a release's environment, or reuse it, and print its interpreter"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("release", help="a pinned version, as `harness releases` lists them")
    arguments.builds(parser)
    arguments.environment(parser)
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        dest="clients",
        metavar="NAME",
        help="with what this client of ours needs beside vLLM; repeat for several",
    )


def run(options: argparse.Namespace) -> int:
    from harness import builds, clients, environments, releases

    if options.builds == "releases":
        build = releases.find(options.release).build(options.device)
    else:
        offered = builds.of(options.builds, options.device)
        build = builds.completed(offered[builds.named(offered, options.release)])
    requirements = (*options.requirements, *clients.requirements(options.clients))
    print(environments.ensure(build, requirements=requirements).python)
    return 0
