"""Making the recordings: a boot of our executor client on the vLLM installed here, and the Hugging Face forward, for
each dtype.

``python -m harness.faults.record`` in a release's environment.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import load_file

from harness import check, conducting, identity
from harness.checkpoint import model_config
from harness.errors import HarnessError
from harness.options import Dtype, Options
from harness.settings import MP_TP2, Group
from harness.shared_engine import SharedEngine
from harness.work import work_folder

from . import recording

GROUP = Group(client="executor", setting=MP_TP2)
OPTIONS = Options(
    clients=(GROUP.client,),
    device="cpu",
    tensor_parallel_sizes=(),
    keyword="",
    evidence=None,
    update_snapshots=False,
    jobs=1,
    model_kind=None,
    as_json=False,
)
REFERENCE_SECONDS = 180.0
# What `test_long_prompts` asks for.
LONG_SETS = ("limit", "crowd")


def record(path: Path, dtype: Dtype, further: tuple[str, ...] = ()) -> None:
    """Write a recording of the vLLM installed here, computing in a dtype, of the batch and of further sets.

    Raises:
        HarnessError: the Hugging Face forward failed.
        CaptureError: the client did.
    """
    facts = identity.environment()
    with tempfile.TemporaryDirectory() as logs, work_folder(Path(logs) / "logs") as work:
        run = check.prepare(work, facts, replace(OPTIONS, dtype=dtype), [GROUP])
        sets: dict[str, list[list[int]]] = json.loads((work / "prompts.json").read_text(encoding="utf-8"))
        prompts, others = sets["batch"], {name: sets[name] for name in further}
        process = conducting.start_reference(run)
        engine = SharedEngine(GROUP, run)
        try:
            engine.open()
            samples = engine.capture(prompts)
            for members in others.values():
                samples += engine.capture(members)
            steps = [engine.call("steps", prompts[:3], skip=skip) for skip in range(3)]
            (identity_of_first, *_others) = engine.call("identities")
        finally:
            engine.close()
        if process is not None and process.wait(REFERENCE_SECONDS) != 0:
            raise HarnessError(f"no reference:\n{(run.logs / 'reference.log').read_text(encoding='utf-8')}")
        notes = {
            "facts": facts,
            "config": model_config(run.checkpoints["deepseek-v2"]),
            "prompts": prompts,
            "further": others,
            "layers": run.layers,
            "identity": {name: identity_of_first[name] for name in ("backend", "runner", "model")},
            "steps": steps,
        }
        reference = {
            name.removeprefix("batch."): states
            for name, states in load_file(run.reference("deepseek-v2")).items()
            if name.startswith("batch.")
        }
        recording.write(path, notes, samples, reference)


if __name__ == "__main__":
    record(recording.FILE, "float32", LONG_SETS)
    record(recording.ROUNDED, "bfloat16")
    print(recording.FILE, recording.ROUNDED)
