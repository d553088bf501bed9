"""Recipes of packages and containers say what setup.cfg says. `make wheel` builds and tries a wheel
in minutes; that is left to continuous integration."""

import configparser
import pathlib
import re
import shutil
import subprocess

import pytest

import hpcgcn

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"


def setup() -> configparser.ConfigParser:
    """setup.cfg."""
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg")
    return read


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = (PACKAGING / "conda" / "meta.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    listed = {line.strip().removeprefix("- ") for line in run.splitlines()}
    options = setup()["options"]
    needed = {line for line in options["install_requires"].splitlines() if line}
    assert listed == needed | {f"python {options['python_requires']}"}
    assert f'{{% set version = "{hpcgcn.__version__}" %}}' in recipe


@pytest.mark.parametrize("name", ["Dockerfile", "hpcgcn.def"])
def test_containers_install_extras_that_exist(name):
    extras = setup()["options.extras_require"]
    used = re.findall(r"\[(\w+)\]", (PACKAGING / name).read_text())
    assert used and all(extra in extras for extra in used)


def test_the_dockerfile_is_linted():
    if not shutil.which("hadolint"):
        pytest.skip("no hadolint: make lint installs it")
    done = subprocess.run(["hadolint", str(PACKAGING / "Dockerfile")], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_script_of_the_wheel_is_a_script():
    subprocess.run(["bash", "-n", str(PACKAGING / "build-wheel")], check=True, timeout=20)


def test_published_settings_and_pages_are_in_the_package():
    data = setup()["options.package_data"]
    assert data["hpcgcn.config"] == "toml_files/*.toml" and "*.js" in data["hpcgcn.report"]
