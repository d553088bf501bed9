"""All settings of a run, from which flags, TOML keys and their documentation are made.

Later wins: defaults, the preset of `method`, the TOML file, flags. Flags and keys have the same
names (`--weight-decay`, `weight_decay`). In Python they are in groups:
`config.training.weight_decay`; the flat name `config.weight_decay` reads the same.
"""

from hpcgcn.config.config import (
    FIELDS,
    GROUPS,
    RENAMED,
    Config,
    check_settings,
    field_named,
    make_config,
)
from hpcgcn.config.flags import add_flags
from hpcgcn.config.old_keys import OLD_FIELDS
from hpcgcn.config.toml import read_toml, to_toml
from hpcgcn.setting import SettingsGroup, checked, flag_of, key_of, setting

__all__ = ["FIELDS", "GROUPS", "OLD_FIELDS", "RENAMED", "Config", "SettingsGroup", "add_flags",
           "check_settings", "checked", "field_named", "flag_of", "key_of", "make_config",
           "read_toml", "setting", "to_toml"]
