"""Settings of parallel = 'hosts': what it does not go with."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.parallel.refusals import attends, has_budget, refuse
from hpcgcn.setting import SettingsGroup


@dataclass(frozen=True)
class Settings(SettingsGroup):
    """parallel = 'hosts': one part per host, columns divided among its ranks."""

    group_name = "hosts"

    def check(self, config):
        if config.parallel == "hosts":
            refuse("hosts", (
                (attends(config),
                 f"model = '{config.model}' computes coefficients from whole rows, and here a rank "
                 "has some columns of them; use parallel = 'partition'"),
                (has_budget(config), "byte_budget counts whole rows, and here each rank sends its "
                                     "columns of them; set the rate"),))
