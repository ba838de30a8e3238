from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checkpoint import check_weights, model_config
from harness.clients.contract import EngineSpec, check_prompts, check_spec, match_recordings
from harness.errors import CheckpointError, IncompleteSampleError, InvalidLayerError, InvalidPromptError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"num_hidden_layers": 5, "vocab_size": 128, "hidden_size": 64}


def _safetensors(tensors: dict[str, int], *, cut: int = 0) -> bytes:
    """A file of tensors with so many bytes each, ``cut`` bytes short."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end - cut)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(_safetensors({"a": 16, "b": 8}))
    return tmp_path


@pytest.fixture
def spec(checkpoint: Path) -> EngineSpec:
    return EngineSpec(model=str(checkpoint), layers=(4, 0, 2), max_model_len=16)


def test_sound_spec_is_taken(spec: EngineSpec) -> None:
    check_spec(spec)
    check_spec(replace(spec, layers=(0, 1, 2, 3, 4)))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((-1,), "layer -1 does not exist"),
        ((0, 5), "layer 5 does not exist: the model has 5 decoder layers, 0 to 4"),
        ((1000,), "layer 1000"),
        ((1, 1), r"\[1, 1\]: give at least one, each once"),
        ((), r"\[\]: give at least one"),
    ],
)
def test_bad_layers_are_refused_by_name(spec: EngineSpec, layers: tuple[int, ...], said: str) -> None:
    with pytest.raises(InvalidLayerError, match=said):
        check_spec(replace(spec, layers=layers))


def test_layers_of_a_wrapped_model_are_its_text_models(spec: EngineSpec, checkpoint: Path) -> None:
    wrapped = {"num_hidden_layers": 1, "text_config": CONFIG}
    (checkpoint / "config.json").write_text(json.dumps(wrapped), encoding="utf-8")
    assert model_config(spec.model) == CONFIG
    check_spec(spec)


@pytest.mark.parametrize(("text", "said"), [(None, "No such file"), ("{", "is not JSON"), ("", "is not JSON")])
def test_missing_or_torn_config_is_refused(spec: EngineSpec, checkpoint: Path, text: str | None, said: str) -> None:
    (checkpoint / "config.json").unlink()
    if text is not None:
        (checkpoint / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=said) as caught:
        check_spec(spec)
    assert "config.json" in str(caught.value), caught.value


@pytest.mark.parametrize("size", [0, 4, 8, 40, 150])
def test_truncated_weights_are_refused(spec: EngineSpec, checkpoint: Path, size: int) -> None:
    weights = checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    assert size < len(whole)
    weights.write_bytes(whole[:size])
    with pytest.raises(CheckpointError, match="Fetch it again") as caught:
        check_spec(spec)
    assert str(weights) in str(caught.value), caught.value


@pytest.mark.parametrize("cut", [1, 23, -1], ids=["a byte short", "nearly all short", "a byte more"])
def test_weights_of_another_length_than_promised_are_refused(checkpoint: Path, cut: int) -> None:
    (checkpoint / "model.safetensors").write_bytes(_safetensors({"a": 16, "b": 8}, cut=cut))
    with pytest.raises(CheckpointError, match="its header promises"):
        check_weights(str(checkpoint))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 200,
        struct.pack("<Q", 4) + b"nope" + bytes(8),
        struct.pack("<Q", 2) + b"{}" + bytes(8),
        struct.pack("<Q", 7) + b'{"a":1}' + bytes(8),
        struct.pack("<Q", 4) + b"[1] " + bytes(8),
        struct.pack("<Q", 26) + b'{"a": {"data_offsets": []}}'[:26] + bytes(8),
        struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc" + bytes(8),
    ],
    ids=["overwritten", "no JSON", "no tensors", "no offsets", "a list", "cut off", "no text"],
)
def test_weights_without_a_readable_header_are_refused(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="no readable safetensors header"):
        check_weights(str(checkpoint))


def test_one_bad_shard_among_good_ones_is_named(checkpoint: Path) -> None:
    (checkpoint / "model-2.safetensors").write_bytes(_safetensors({"c": 8}, cut=2))
    with pytest.raises(CheckpointError, match=r"model-2\.safetensors"):
        check_weights(str(checkpoint))


def test_missing_weights_are_refused(spec: EngineSpec, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no"):
        check_spec(spec)


def test_layers_are_refused_before_weights_are_read(spec: EngineSpec, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(InvalidLayerError):
        check_spec(replace(spec, layers=(9,)))


@given(st.lists(st.lists(st.integers(0, 127), min_size=1, max_size=15), max_size=4))
def test_sound_prompts_are_taken(tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]]) -> None:
    folder = tmp_path_factory.getbasetemp() / "sound"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    check_prompts(EngineSpec(model=str(folder), layers=(0,), max_model_len=16), prompts)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([], "prompt 1 is empty"),
        ([2] * 16, "prompt 1 has 16 tokens and the engine takes 15"),
        ([2, 128], "prompt 1 holds token id 128; the vocabulary is 0 to 127"),
        ([-1], "token id -1"),
    ],
)
def test_bad_prompt_is_refused_by_number(spec: EngineSpec, prompt: list[int], said: str) -> None:
    with pytest.raises(InvalidPromptError, match=said):
        check_prompts(spec, [[2, 3], prompt])


def _recording(token_ids: list[int], name: str = "", missing: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"request_id": name, "token_ids": token_ids, "missing": list(missing)}


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=6), st.randoms())
def test_recordings_come_in_the_order_of_the_prompts(prompts: list[list[int]], random: Any) -> None:
    recordings = [_recording(prompt) for prompt in prompts]
    random.shuffle(recordings)
    matched = match_recordings(prompts, recordings)
    assert [recording["token_ids"] for recording in matched] == prompts
    assert len({id(recording) for recording in matched}) == len(prompts)


def test_equal_prompts_get_a_recording_each() -> None:
    recordings = [_recording([5, 6], "first"), _recording([7], "other"), _recording([5, 6], "second")]
    matched = match_recordings([[5, 6], [5, 6], [7]], recordings)
    assert [recording["request_id"] for recording in matched] == ["first", "second", "other"]


@pytest.mark.parametrize(
    ("prompts", "recordings", "said"),
    [
        ([[5], [6, 7]], [_recording([5])], r"prompt 1 \(2 tokens\) has no recording: the workers saw \[1\] tokens"),
        ([[5], [5]], [_recording([5])], "prompt 1"),
        ([[5]], [], r"the workers saw \[\]"),
        ([[5, 6, 7]], [_recording([5, 6, 7], missing=(0, 1))], r"rows 0 to 1 of 3 were never computed \(2 missing\)"),
        ([[5]], [_recording([5]), _recording([8])], "1 recordings belong to no prompt"),
        ([], [_recording([5])], "1 recordings belong to no prompt"),
        ([[5]], [_recording([5]), _recording([5])], "1 recordings belong to no prompt"),
    ],
)
def test_incomplete_recordings_are_refused(
    prompts: list[list[int]], recordings: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(IncompleteSampleError, match=said):
        match_recordings(prompts, recordings)


@pytest.mark.parametrize("config", ["[]", '{"text_config": 3}', "{}", '{"num_hidden_layers": "5", "hidden_size": 1}'])
def test_a_config_that_lacks_a_size_is_a_damaged_checkpoint(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        model_config(str(tmp_path))
