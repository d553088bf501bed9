"""Settings of earlier versions, as parts of the settings that replace them.

A file or a script with old names means what it meant: `staleness_features = 1` is added to
`staleness` (that of the method, or the one given) as `features=1`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from hpcgcn.setting import SettingsGroup, setting


@dataclass(frozen=True)
class OldSettings(SettingsGroup):
    """Names that are understood and not offered."""

    staleness_features: int = setting(0, "staleness = 'features=...'", choices=(0, 1))
    staleness_gradients: int = setting(0, "staleness = 'gradients=...'", choices=(0, 1))
    smooth_features: float = setting(0.0, "smoothing = 'features=...'", low=0.0, below=1.0)
    smooth_gradients: float = setting(0.0, "smoothing = 'gradients=...'", low=0.0, below=1.0)
    compress_last: bool = setting(True, "codec = '...,last=fp32'")


OLD_FIELDS = {spec.name: spec for spec in dataclasses.fields(OldSettings)}
REPLACED_BY = {"staleness_features": "staleness", "staleness_gradients": "staleness",
               "smooth_features": "smoothing", "smooth_gradients": "smoothing",
               "compress_last": "codec"}


def with_old(values: dict[str, Any], chosen: dict[str, Any],
             defaults: dict[str, str]) -> dict[str, Any]:
    """Settings with old names among them in the present names.

    chosen: those of them that are not the method's; defaults: of the present ones.
    """
    present = {key: value for key, value in values.items() if key not in OLD_FIELDS}
    for old, key in REPLACED_BY.items():
        if old in values:
            text = str(present.get(key, defaults[key]))
            present[key] = _added(text, old, values[old])
            if key == "staleness" and "stale_error" not in chosen:
                present["stale_error"] = "inf"       # which they knew nothing of
    return present


def _added(text: str, old: str, value) -> str:
    if old == "compress_last":
        base = text.partition(",")[0]
        if value:
            return f"{text},last={base}" if "," in text else text
        return f"{text},last=fp32"
    return f"{text},{old.partition('_')[2]}={value:g}"
