"""docs/failures.md: every report has a test, and every test that it names is there. So has every injected fault."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/failures.md").read_text(encoding="utf-8")
# Numbers that are missing here were joined to others when the reports were collected.
REPORTS = [1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 22, 23, 26, 27, 29, 30, 32, 33, 35]
SOURCES = {file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").glob("test_*.py")}
TESTS = {name for text in SOURCES.values() for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)}


def test_every_report_has_its_line() -> None:
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == REPORTS


@pytest.mark.parametrize(
    "line", [line for line in PAGE.splitlines() if re.match(r"\| (?!---|#|what |promised \|)", line)]
)
def test_every_line_names_tests_that_exist(line: str) -> None:
    named = re.findall(r"`(test_\w+)`", line.rstrip("| ").rpartition(" | ")[2])
    assert named
    assert set(named) <= TESTS


def test_every_fault_that_is_injected_has_its_place_and_its_test() -> None:
    faults = runpy.run_path(str(ROOT / "scripts/mutate.py"))["FAULTS"]
    assert len(faults) >= 15
    for fault in faults:
        assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1, fault
        file, _, name = fault.test.partition("::")
        assert f"\ndef {name.partition('[')[0]}(" in SOURCES[ROOT / file], fault.test
