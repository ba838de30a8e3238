from __future__ import annotations

import hashlib
import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import UsageError
from harness.extraction.jobs import Job
from harness.extraction.prompt_file import DIGEST_BYTES, Limits, PromptFile, digest
from harness.extraction.shard import Shard, parse

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = Limits(vocabulary=100, longest=6, advice="Shorten it")


def _tokenize(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def _read(path: Path, *lines: Any) -> PromptFile:
    path.write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    )
    return PromptFile(path, _tokenize, LIMITS)


@pytest.mark.parametrize(
    "line",
    [
        {"prompt_token_ids": [3, 1, 2]},
        {"token_ids": [3, 1, 2], "prompt": "what it was"},
        {"input_ids": [3, 1, 2], "attention_mask": [1, 1, 1], "id": "x"},
        {"prompt": "abc d ef"},
        {"text": "abc d ef", "source": None},
        b'  {"text": "abc d ef"}  \r\n',
        b'{"text": "abc d ef"}',
    ],
)
def test_every_way_to_give_a_sample(tmp_path: Path, line: Any) -> None:
    prompts = _read(tmp_path / "p", {"token_ids": [9]}, line)
    assert list(prompts.jobs([1, 0])) == [
        Job(index=1, token_ids=array("q", (3, 1, 2))),
        Job(index=0, token_ids=array("q", (9,))),
    ]
    assert (len(prompts), list(prompts.tokens)) == (2, [1, 3])


def test_masks_are_read(tmp_path: Path) -> None:
    prompts = _read(tmp_path / "p", {"input_ids": [3, 1], "loss_mask": [0, 1]})
    assert list(prompts.jobs([0])) == [Job(index=0, token_ids=array("q", (3, 1)), loss_mask=array("q", (0, 1)))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\n", "is empty: every line is a sample. Remove it"),
        (b"{\n", "is not JSON: "),
        (b'{"prompt": "\xff"}\n', "is not JSON: "),
        ([1, 2], "is no JSON object"),
        ({"loss_mask": [1]}, "has no prompt. Give token ids as prompt_token_ids or token_ids or input_ids, or text"),
        ({"token_ids": [1], "input_ids": [1]}, "has token_ids and input_ids. Leave one"),
        ({"text": "a", "prompt": "b"}, "has prompt and text. Leave one"),
        ({"prompt": [1, 2]}, "has prompt [1, 2], which is no text. Token ids go under prompt_token_ids"),
        ({"token_ids": "1 2"}, 'has token_ids "1 2", which is no list of token ids'),
        ({"token_ids": [1, True]}, "has true in token_ids[1], where an integer belongs"),
        ({"token_ids": [1.0]}, "has 1.0 in token_ids[0]"),
        ({"token_ids": []}, "has no token: a prefill needs at least one"),
        ({"text": "  "}, "has no token"),
        ({"token_ids": [1, 100]}, "holds token id 100; the model's vocabulary is 0 to 99"),
        ({"token_ids": [-1]}, "holds token id -1"),
        ({"token_ids": [10**30]}, "holds token id 1000"),
        ({"token_ids": [1] * 7}, "has 7 tokens; 6 fit. Shorten it"),
        ({"token_ids": [1], "loss_mask": [1, 0]}, "has a loss_mask of 2 for 1 tokens. Give one a token"),
        ({"token_ids": [1], "loss_mask": [2]}, "has 2 in loss_mask, which takes 0 and 1"),
        ({"token_ids": [1], "loss_mask": [0.5]}, "has 0.5 in loss_mask[0]"),
        (
            {"token_ids": [1], "loss_mask": [1]},
            "has a loss_mask, and line 1 has none. Give it on every line or on none",
        ),
    ],
)
def test_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: Any, message: str) -> None:
    path = tmp_path / "p.jsonl"
    with pytest.raises(UsageError) as caught:
        _read(path, {"token_ids": [1]}, line, {"token_ids": [2]})
    assert str(caught.value).startswith(f"{path}:2 {message}"), caught.value


def test_mask_that_only_the_first_line_has_is_missed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="p:2 has no loss_mask, and line 1 has one"):
        _read(tmp_path / "p", {"token_ids": [1], "loss_mask": [1]}, {"token_ids": [1]})


def test_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is empty"):
        _read(tmp_path / "p")
    with pytest.raises(UsageError, match=r"none.jsonl: No such file or directory\. Give a file of prompts"):
        PromptFile(tmp_path / "none.jsonl", _tokenize, LIMITS)


def test_digest_is_of_int64() -> None:
    plain = hashlib.sha256(b"\1" + bytes(7) + b"\0\1" + bytes(6)).digest()
    assert digest(array("q", (1, 256))) == plain[:DIGEST_BYTES]


def test_what_is_said_of_samples_does_not_hang_on_how_they_are_written(tmp_path: Path) -> None:
    one = _read(tmp_path / "one", {"token_ids": [1, 2]}, {"token_ids": [3]})
    same = _read(tmp_path / "same", b'{"input_ids":[1,2], "id": 7}\n', {"prompt": "abc"})
    others = [
        _read(tmp_path / "cut", {"token_ids": [1]}, {"token_ids": [2, 3]}),
        _read(tmp_path / "turned", {"token_ids": [3]}, {"token_ids": [1, 2]}),
        _read(tmp_path / "more", {"token_ids": [1, 2]}, {"token_ids": [3]}, {"token_ids": [3]}),
        _read(tmp_path / "masked", {"token_ids": [1, 2], "loss_mask": [1, 1]}, {"token_ids": [3], "loss_mask": [1]}),
        _read(tmp_path / "other", {"token_ids": [1, 2], "loss_mask": [0, 1]}, {"token_ids": [3], "loss_mask": [1]}),
    ]
    assert one.samples_sha256 == same.samples_sha256
    assert one.sha256 != same.sha256
    assert len({one.samples_sha256, *(other.samples_sha256 for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("now", [b'{"token_ids": [1, 3]}\n', b"", b"nothing of the kind\n"])
def test_file_that_changes_meanwhile_is_noticed(tmp_path: Path, now: bytes) -> None:
    prompts = _read(tmp_path / "p", {"token_ids": [1, 2]})
    prompts.path.write_bytes(now)
    with pytest.raises(UsageError, match="p:1 was changed while this ran"):
        list(prompts.jobs([0]))
    prompts.path.unlink()
    with pytest.raises(UsageError, match="Put it back"):
        list(prompts.jobs([0]))


def _changed(path: Path, old: dict[str, Any], new: dict[str, Any]) -> list[Job]:
    """What is read of a line that is changed in place, after the file was checked: it is as long as it was."""
    before, after = (json.dumps(line).encode().ljust(100) + b"\n" for line in (old, new))
    prompts = _read(path, before)
    path.write_bytes(after)
    return list(prompts.jobs([0]))


@pytest.mark.parametrize(
    "new",
    [
        {"loss_mask": [0, 1, 0]},
        {"loss_mask": [1, 0, 1]},
        {"loss_mask": [0, 0, 0]},
        {"loss_mask": [0, 1]},
        {"loss_mask": [0, 1, 2]},
        {"loss_mask": None},
        {"input_ids": [1, 2, 4]},
        {"input_ids": [1, 2, 300]},
    ],
    ids=str,
)
def test_whatever_of_a_sample_changes_meanwhile_is_noticed(tmp_path: Path, new: dict[str, Any]) -> None:
    old = {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}
    with pytest.raises(UsageError, match="p:1 was changed while this ran"):
        _changed(tmp_path / "p", old, {**old, **new})


def test_mask_that_comes_meanwhile_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="p:1 was changed while this ran"):
        _changed(tmp_path / "p", {"input_ids": [1]}, {"input_ids": [1], "loss_mask": [1]})


def test_what_is_no_part_of_a_sample_may_change_meanwhile(tmp_path: Path) -> None:
    old = {"id": 1, "input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}
    new = {"source": "x", "token_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}
    (job,) = _changed(tmp_path / "p", old, new)
    assert job == Job(index=0, token_ids=array("q", (1, 2, 3)), loss_mask=array("q", (0, 1, 1)))


@pytest.mark.parametrize(("samples", "count"), [(20, 1), (20, 3), (2, 5), (1000, 7)])
def test_shards_are_every_sample_once_and_as_long_as_each_other(samples: int, count: int) -> None:
    shards = [Shard(number=number + 1, count=count).indices(samples) for number in range(count)]
    assert [index for shard in shards for index in shard] == list(range(samples))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1/0", "-1/2", "1", "1/2/3", "", "a/b", "1.0/2"])
def test_shard_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"--shard .*: give I/N"):
        parse(text)


def test_shard_as_it_is_written() -> None:
    assert (parse("2/4"), str(parse("2/4"))) == (Shard(number=2, count=4), "2/4")
    assert (parse("2/4").suffix, parse("1/1").suffix) == ("-2-of-4", "")
