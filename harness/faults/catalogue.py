"""The faults as data, read from ``catalogue.toml``, and the judgement on what the suite made of them: pure."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from harness import settings
from harness.evidence import BROKEN
from harness.settings import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.evidence import CaseResult

FILE = Path(__file__).with_name("catalogue.toml")
Kind: TypeAlias = Literal["states", "values", "calls", "refusals", "engines", "live"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Outcome: TypeAlias = Literal["caught", "missed", "wrong cause", "not run", "sound", "unsound", "not reached"]
GOOD: tuple[Outcome, ...] = ("caught", "sound")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to break a sound client.

    ``kind`` is the module of this package that holds the broken client under ``name``. ``case`` must fail:
    ``test_x.py::test_y``, or with ``[parameter]`` one of it. ``cause`` is a regular expression that the finding's
    cause, or what it got, must hold. ``needs`` is a capability without which there is nothing to break. Faults that
    keep out of each other's cases can be of one ``client``, and so of one engine. ``sound`` is the client of ours
    that is broken.
    """

    kind: Kind
    name: str
    broken: str
    case: str
    cause: str
    setting: str = "mp-tp2"
    needs: str = ""
    client: str = ""
    sound: str = "executor"

    @property
    def live(self) -> bool:
        return self.kind == "live"

    @property
    def group(self) -> Group:
        return Group(
            client=f"harness.faults.{self.kind}:{self.client or self.name}", setting=settings.named(self.setting)
        )

    @property
    def unbroken(self) -> Group:
        """The same engine, of the sound client."""
        return Group(client=self.sound, setting=settings.named(self.setting))

    @property
    def function(self) -> str:
        """The case without its parameter."""
        return self.case.partition("[")[0]

    def judged_by(self, case: str) -> bool:
        """Whether a case id is the one that must fail, on this fault's engine."""
        parameter = self.case.partition("[")[2].rstrip("]")
        function, engine, parameters = _split(case, self.group.name)
        return function == self.function and engine and parameter in ("", parameters)


def _split(case: str, group: str) -> tuple[str, bool, str]:
    """A case id's function, whether it ran on a group, and its other parameters."""
    function, _, parameters = case.partition("[")
    parameters = parameters.removesuffix("]")
    if parameters == group:
        return function, True, ""
    return function, parameters.startswith(f"{group}-"), parameters.removeprefix(f"{group}-")


def load() -> tuple[Fault, ...]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(Fault(kind=kind, **table) for kind in KINDS for table in tables.get(kind, ()))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the suite made of one fault, or of a sound client; ``said`` is the cause that was named."""

    name: str
    case: str
    outcome: Outcome
    said: str

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(fault: Fault, cases: Iterable[CaseResult], *, cut: bool = False) -> Verdict:
    """Caught only if the case that must fail has failed, with the cause that it must name.

    Of a run that was ``cut`` short nothing else is known: what did not fail yet might have.
    """
    judged = [case for case in cases if fault.judged_by(case.id)]
    causes = [f"{case.finding['cause']}\n{case.finding['got']}" for case in judged if case.finding is not None]
    named = [cause for cause in causes if re.search(fault.cause, cause)]
    outcome: Outcome
    if named:
        outcome = "caught"
    elif cut:
        return not_reached(fault)
    elif not judged:
        outcome = "not run"
    else:
        outcome = "wrong cause" if causes else "missed"
    said = (named or causes or [""])[0].partition("\n")[0]
    return Verdict(name=fault.name, case=fault.case, outcome=outcome, said=said)


def not_reached(fault: Fault) -> Verdict:
    """The verdict on a fault whose cases did not all run, for the run was interrupted."""
    return Verdict(name=fault.name, case=fault.case, outcome="not reached", said="interrupted")


def judge_sound(group: Group, cases: Iterable[CaseResult], *, cut: bool = False) -> Verdict:
    """Sound only if cases passed and none gave a finding; a run that was ``cut`` short shows findings alone."""
    own = [case for case in cases if _split(case.id, group.name)[1]]
    broken = [case for case in own if case.outcome in BROKEN]
    outcome: Outcome = "sound" if any(case.outcome == "passed" for case in own) and not broken else "unsound"
    if cut and not broken:
        outcome = "not reached"
    said = broken[0].finding["cause"] if broken and broken[0].finding else "" if own else "nothing ran"
    case = broken[0].id if broken else f"all of {len(own)} cases"
    return Verdict(name=group.client, case=case, outcome=outcome, said=said)


def only(faults: Sequence[Fault]) -> dict[str, list[str]]:
    """The cases that each fault's engine runs, for `Run.only`."""
    return _cases((fault.group, fault) for fault in faults)


def only_sound(faults: Sequence[Fault]) -> dict[str, list[str]]:
    """The cases that the sound engines run: those that must fail on the broken ones."""
    return _cases((fault.unbroken, fault) for fault in faults)


def _cases(judged: Iterable[tuple[Group, Fault]]) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = {}
    for group, fault in judged:
        of_group = cases.setdefault(group.name, [])
        of_group += [fault.function] * (fault.function not in of_group)
    return cases
