"""tests/README.md names what is there: every folder and package, and no test that is gone."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS / "README.md").read_text()


def test_every_folder_of_tests_is_described():
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert folders == set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE))


def test_every_package_has_a_line():
    packages = {path.parent.name for path in (TESTS.parent / "hpcgcn").glob("*/__init__.py")}
    assert packages == {package for package in packages if f"`{package}/" in PAGE}


def test_every_test_that_is_named_is_there():
    for name in re.findall(r"test_\w*\*?\w*\.py", PAGE):
        assert list(TESTS.glob(f"*/{name}")), f"tests/README.md names {name}"


def test_every_marker_is_described():
    section = (TESTS.parent / "setup.cfg").read_text().partition("markers =\n")[2]
    declared = set(re.findall(r"^    (\w+):", section, re.MULTILINE))
    assert declared and declared == {name for name in declared if f"| `{name}` |" in PAGE}
