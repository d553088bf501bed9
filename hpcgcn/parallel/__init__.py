"""How the work is divided over the ranks: a folder per strategy, and this list of their names.

    settings.py    Settings: the strategy's own settings and what they do not go with. Optional. The
                   configuration imports it, so it imports nothing heavy.
    strategy.py    STRATEGY: a subclass of Strategy (see strategy.py beside this file)

Nothing outside of a strategy's folder asks which strategy it is.
"""

from __future__ import annotations

import importlib
import importlib.util

STRATEGIES = ("single", "partition", "features", "hosts", "layers")


def settings_groups() -> dict[str, type]:
    """{name of the group in the configuration: group} of the strategies that have settings."""
    groups = {}
    for name in STRATEGIES:
        module = f"{__name__}.{name}.settings"
        if importlib.util.find_spec(module):
            group = importlib.import_module(module).Settings
            groups[group.group_name] = group
    return groups


def strategy_named(name: str):
    """The class of a strategy."""
    return importlib.import_module(f"{__name__}.{name}.strategy").STRATEGY


def strategy_name(config, n_ranks: int) -> str:
    """The strategy that the settings mean for this number of ranks."""
    if config.parallel != "auto":
        return config.parallel
    return "single" if n_ranks == 1 else "partition"


def make_strategy(runtime, config):
    """The strategy of the settings on the ranks of a runtime. Collective."""
    return strategy_named(strategy_name(config, runtime.size))(runtime, config)
