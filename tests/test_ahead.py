"""A batch on its way before the last one is accounted for: in which order, and what is left when one fails."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from harness.adapters.ahead import Ahead

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.adapters.base import Adapter

WHATS = ("begin", "end")


class Toy:
    """Adapter and scheduler in one: batches of so many tokens, and what is done with them, in turn.

    As vLLM's scheduler, it has requests until all batches are accounted for, and one step more that tells so.
    """

    def __init__(self, *tokens: int) -> None:
        self.scheduler = self
        self.said: list[str] = []
        self.broken = ""
        self._left = deque(f"{number}" for number in range(1, len(tokens) + 1))
        self._tokens = dict(zip(self._left, tokens, strict=True))
        self._owed = len(tokens)
        self._to_tell = False

    def busy(self) -> bool:
        return bool(self._owed or self._to_tell)

    def schedule(self) -> Any:
        name = self._left.popleft() if self._left else "none"
        self._to_tell = False
        return SimpleNamespace(name=name, total_num_scheduled_tokens=self._tokens.get(name, 0))

    def begin(self, scheduled: Any) -> Callable[[], str]:
        self.said.append(f"begin {scheduled.name}")

        def output() -> str:
            if scheduled.name == self.broken:
                raise RuntimeError(f"{scheduled.name} failed")
            return f"output of {scheduled.name}"

        return output

    def update_from_output(self, scheduled: Any, output: str) -> None:
        assert output == f"output of {scheduled.name}"
        self.said.append(f"end {scheduled.name}")
        if scheduled.name != "none":
            self._owed -= 1
            self._to_tell = True


def _ahead(toy: Toy) -> Ahead:
    return Ahead(cast("Adapter", toy))


def test_the_next_batch_is_on_its_way_before_the_last_one_is_accounted_for() -> None:
    toy = Toy(8, 4, 2)
    ahead, tokens = _ahead(toy), []
    while ahead.busy():
        tokens.append(ahead.step())
    assert toy.said[:6] == ["begin 1", "begin 2", "end 1", "begin 3", "end 2", "begin none"], toy.said
    nones = ["none"] * toy.said.count("begin none")
    assert sorted(toy.said) == sorted(f"{what} {name}" for name in ["1", "2", "3", *nones] for what in WHATS)
    assert tokens == [0, 8, 4, 2, *[0] * (len(tokens) - 4)], "what a step tells is of the batch that came back"


def test_two_batches_are_under_way_at_most() -> None:
    toy = Toy(*[1] * 20)
    ahead, most = _ahead(toy), 0
    while ahead.busy():
        ahead.step()
        begun, ended = (sum(said.startswith(what) for said in toy.said) for what in WHATS)
        most = max(most, begun - ended)
    assert most == 1, "between two steps"
    assert toy.said.count("begin none") == toy.said.count("end none") <= 2, toy.said


@pytest.mark.parametrize("tokens", [(), (5,)])
def test_little_or_nothing_to_do_comes_to_its_end(tokens: tuple[int, ...]) -> None:
    toy = Toy(*tokens)
    ahead = _ahead(toy)
    steps = []
    while ahead.busy():
        steps.append(ahead.step())
    assert [step for step in steps if step] == list(tokens)


def test_a_call_is_heard_with_the_last_batch_before_it_and_keeps_no_batch_from_beginning() -> None:
    toy = Toy(8, 4, 2, 1)
    ahead = _ahead(toy)
    ahead.step()
    ahead.step()
    assert toy.said == ["begin 1", "begin 2", "end 1"]
    ahead.follow(lambda: toy.said.append("heard"))
    assert toy.said[3:] == [], "its reply comes behind that of the second batch"
    ahead.step()
    assert toy.said[3:] == ["begin 3", "end 2", "heard"]
    while ahead.busy():
        ahead.step()
    assert toy.said[6:9] == ["begin 4", "end 3", "begin none"], "and then it goes on as ever"


def test_a_call_while_nothing_is_under_way_is_heard_at_once() -> None:
    toy = Toy()
    ahead = _ahead(toy)
    ahead.follow(lambda: toy.said.append("heard"))
    assert toy.said == ["heard"]
    assert not ahead.busy()


def test_what_the_reply_to_a_call_raised_comes_out_of_the_step_that_hears_it() -> None:
    toy = Toy(1, 1)
    ahead = _ahead(toy)
    ahead.step()

    def hear() -> None:
        raise RuntimeError("the call failed")

    ahead.follow(hear)
    with pytest.raises(RuntimeError, match="the call failed"):
        ahead.step()
    assert toy.said == ["begin 1", "begin 2", "end 1"]
    while ahead.busy():
        ahead.step()
    assert toy.said.count("end 2") == 1


def test_a_call_behind_a_batch_that_failed_is_still_heard() -> None:
    toy = Toy(1, 1, 1)
    toy.broken = "1"
    ahead = _ahead(toy)
    ahead.step()
    ahead.follow(lambda: toy.said.append("heard"))
    assert ahead.calling
    with pytest.raises(RuntimeError, match="1 failed"):
        ahead.step()
    assert ahead.calling
    ahead.step()
    assert toy.said == ["begin 1", "begin 2", "heard", "begin 3", "end 2"]
    assert not ahead.calling


def test_a_step_that_only_hears_a_call() -> None:
    toy = Toy(1)
    toy.broken = "1"
    ahead = _ahead(toy)
    ahead.step()
    ahead.follow(lambda: toy.said.append("heard"))
    toy.busy = lambda: False  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="1 failed"):
        ahead.step()
    assert ahead.busy()
    assert ahead.step() == 0
    assert toy.said == ["begin 1", "heard"]
    assert not ahead.busy()


def test_what_a_batch_raised_comes_out_of_the_step_that_accounts_for_it() -> None:
    toy = Toy(1, 1, 1)
    toy.broken = "1"
    ahead = _ahead(toy)
    assert ahead.step() == 0
    with pytest.raises(RuntimeError, match="1 failed"):
        ahead.step()
    assert toy.said == ["begin 1", "begin 2"], "nothing is accounted for, and the second batch is still under way"
    assert ahead.busy()
