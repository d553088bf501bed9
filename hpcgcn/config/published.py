"""Settings that others published: the files of data/configs, which the package holds too."""

from __future__ import annotations

from importlib.resources import files


def published() -> dict[str, str]:
    """{name: text of the TOML file}"""
    folder = files("hpcgcn.config").joinpath("toml_files")
    return {item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
            for item in sorted(folder.iterdir(), key=lambda item: item.name)
            if item.name.endswith(".toml")}
