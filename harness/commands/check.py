"""``harness check``: the suite on the vLLM at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.clients import IN_HOUSE
from harness.errors import UsageError
from harness.options import DEFAULT_DTYPES, DTYPES, Options, model_runner
from harness.settings import MODEL_KINDS

from . import arguments

if TYPE_CHECKING:
    import argparse

HELP = "run the cases on the vLLM installed here"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{', '.join(IN_HOUSE)}, or module:attribute for your own; repeat for several; executor and llm if not "
        "given",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="what the model computes in; float32 on cpu, bfloat16 on cuda, if not given"
    )
    parser.add_argument(
        "--tensor-parallel-size",
        action="append",
        type=arguments.size,
        default=[],
        metavar="N",
        help="only these sizes; repeat for several; 1 and 2 if not given",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME",
        help="only these engines, mp-tp2 or tight-tp8 say; repeat for several",
    )
    parser.add_argument(
        "--pipeline-parallel-size",
        type=arguments.size,
        default=1,
        metavar="N",
        help="only engines with this many pipeline stages, which the suite opens on request alone",
    )
    parser.add_argument(
        "--executor-backend",
        choices=("ray",),
        help="only engines whose workers are Ray's, which the suite opens on request alone",
    )
    parser.add_argument(
        "--model-kind",
        choices=MODEL_KINDS,
        help="every engine on this tiny checkpoint; deepseek-v2, and one engine on kimi-k25, if not given",
    )
    parser.add_argument(
        "-k", default="", dest="keyword", metavar="EXPRESSION", help="only cases that match, as pytest -k"
    )
    parser.add_argument(
        "--evidence",
        type=Path,
        metavar="FILE",
        help="where the record goes; evidence.json in results/<release>-<device> if not given, with a dtype or "
        "model runner chosen otherwise in its name",
    )
    parser.add_argument(
        "--update-snapshots", action="store_true", help="write this release's snapshots instead of comparing"
    )
    parser.add_argument(
        "--snapshots-of", metavar="RELEASE", help="hold this vLLM to what another release did, as `bisect` does"
    )
    parser.add_argument(
        "-n",
        "--jobs",
        type=arguments.size,
        metavar="N",
        help="engines side by side; as cores and memory allow if not given",
    )
    parser.add_argument("--json", action="store_true", help="print the evidence; progress goes to stderr")


def run(options: argparse.Namespace) -> int:
    from harness import check

    return check.check(asked(options))


def asked(options: argparse.Namespace) -> Options:
    """What a command line asks for.

    Raises:
        UsageError: it contradicts itself, or names a release that is not pinned.
    """
    from harness import releases

    if options.setting and options.tensor_parallel_size:
        raise UsageError("--setting names the size as well: leave out --tensor-parallel-size")
    if options.snapshots_of is not None:
        releases.find(options.snapshots_of)
        if options.update_snapshots:
            raise UsageError("--update-snapshots would write another release's snapshots: leave out --snapshots-of")
    return Options(
        clients=tuple(options.client),
        device=options.device,
        tensor_parallel_sizes=tuple(options.tensor_parallel_size),
        model_kind=options.model_kind,
        keyword=options.keyword,
        evidence=options.evidence,
        update_snapshots=options.update_snapshots,
        jobs=options.jobs,
        as_json=options.json,
        snapshots_of=options.snapshots_of,
        settings=tuple(options.setting),
        dtype=options.dtype or DEFAULT_DTYPES[options.device],
        model_runner=model_runner(),
        pipeline_parallel_size=options.pipeline_parallel_size,
        executor_backend=options.executor_backend,
    )
