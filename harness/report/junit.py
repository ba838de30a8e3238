"""A report as JUnit XML of the xunit2 family: a test suite a run."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from harness.evidence import BROKEN

from .summary import findings
from .text import legible

if TYPE_CHECKING:
    from harness.evidence import CaseResult

    from .gather import Row, Table


def junit(table: Table) -> str:
    """The whole table.

    A known upstream fault and a case that is not applicable are skipped, as pytest writes an expected failure. A run
    that is no pass for a reason that no case shows has an error of its own, in a case named ``evidence``.
    """
    suites = ET.Element("testsuites", name="vLLM capture conformance")
    for row in table.rows:
        suites.append(_suite(row))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _suite(row: Row) -> ET.Element:
    suite = ET.Element("testsuite", name=legible(row.name))
    if row.record is not None:
        suite.set("timestamp", legible(row.record.started))
        suite.set("time", f"{row.record.seconds:.3f}")
        for case in row.record.cases:
            suite.append(_case(case, row))
    if row.verdict not in {"conforms", "findings"}:
        whole = ET.SubElement(suite, "testcase", classname=legible(row.name), name="evidence", time="0.000")
        ET.SubElement(whole, "error", message=legible(row.note), type=row.verdict)
    for attribute, tag in (("errors", "error"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    return suite


def _case(case: CaseResult, row: Row) -> ET.Element:
    file, _, name = case.id.partition("::")
    element = ET.Element(
        "testcase",
        classname=legible(f"{row.name}.{file.removesuffix('.py')}"),
        name=legible(name or file),
        time=f"{case.seconds:.3f}",
    )
    if case.outcome in BROKEN:
        (finding, _ids), *_ = findings([case])
        tag = "error" if case.outcome == "error" else "failure"
        broken = ET.SubElement(element, tag, message=legible(finding.got), type=case.outcome)
        broken.text = legible(finding.explain())
    elif case.outcome != "passed":
        ET.SubElement(element, "skipped", message=legible(case.reason), type=case.outcome)
    return element
