"""Which column of a table of nodes is what: by its name, or as the user says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpcgcn.errors import ConfigError
from hpcgcn.formats.draft import ReadOptions
from hpcgcn.formats.files import bad
from hpcgcn.formats.rows import Table

NO_COLUMNS = "none"        # in the place of the names of columns
_ID_NAMES = ("id", "node", "node_id", "nodeid", "name")
# Columns that hold the class more often than a feature.
_LIKE_A_LABEL = re.compile(
    r"target|class(es|_?(id|label|name))?|y|categor(y|ies)|labels|labels?_?id|"
    r"node_?labels?|outcome|ground_?truth", re.IGNORECASE)
_SEVERAL_SPLITS = re.compile(r"split:\d{1,9}")


@dataclass
class Columns:
    """Numbers of columns."""

    identity: int
    label: int | None
    classes: list[int]                     # multi-label: one column per class, named label:CLASS
    splits: list[int]
    features: list[int]
    notes: list[str] = field(default_factory=list)


def choose_columns(table: Table, options: ReadOptions) -> Columns:
    """What is neither id, label nor split is a feature, unless the user says otherwise."""
    names = table.first
    lower = [name.lower() for name in names]
    if len(set(names)) != len(names):
        raise bad(table.path, table.first_line, "two columns of the same name",
                  "different names in the header")
    identity = _identity(table, lower, options)
    label = _label(table, lower, options)
    classes = [k for k, name in enumerate(lower) if name.startswith("label:")]
    chosen = Columns(identity, label, classes if label is None else [],
                     _splits(table, lower, options), [])
    chosen.features = _features(table, chosen, options)
    chosen.notes = _notes(names, chosen)
    return chosen


def id_column(table: Table, options: ReadOptions) -> int | None:
    """The column of ids if there is one: as the user says, or by its name.

    Of several files some may have a column as the user says, and the others one of the usual names.
    """
    lower = [name.lower() for name in table.first]
    if options.id_column in table.first:
        return table.first.index(options.id_column or "")
    return next((lower.index(name) for name in _ID_NAMES if name in lower), None)


def listed_columns(table: Table, options: ReadOptions, taken: set[int | None]) -> list[int]:
    """The columns of features of a table that has nothing but ids and features."""
    given = options.feature_columns
    skipped = {_named(table, name) for name in options.skip_columns or ()}
    listed = (range(len(table.first)) if given is None or given == [NO_COLUMNS]
              else [_named(table, name) for name in given])
    if len(set(listed)) != len(listed):
        raise ConfigError(f"--feature-columns {','.join(given or ())}: expected every column once")
    return [k for k in listed if k not in taken | skipped]


def likely_label(table: Table, options: ReadOptions,
                 identity: int | None) -> tuple[str | None, list[str]]:
    """(the column of classes in a table of labels, notes); None: it has a column per class."""
    names = table.first
    if options.label_column:
        _named(table, options.label_column)
        return options.label_column, []
    lower = [name.lower() for name in names]
    if "label" in lower:
        return names[lower.index("label")], []
    if any(name.startswith("label:") for name in lower):
        return None, []
    split = options.split_column or "split"
    others = [name for k, name in enumerate(names) if k != identity and name != split]
    likely = [name for name in others if _LIKE_A_LABEL.fullmatch(name)
              or name.lower().endswith(("_target", "_label", "_class"))]
    chosen = others if len(others) == 1 else likely
    if len(chosen) != 1:
        raise bad(table.path, table.first_line, f"the columns {', '.join(others)[:200]}",
                  f"--label-column {(likely or others or ['NAME'])[-1][:40]}, or another that "
                  "holds the classes")
    return chosen[0], [f"labels are the column {chosen[0]} of {table.path} (--label-column)"]


def _identity(table: Table, lower: list[str], options: ReadOptions) -> int:
    if options.id_column and not (options.labels or options.features):
        return _named(table, options.id_column)
    column = id_column(table, options)
    if column is None:
        raise bad(table.path, table.first_line,
                  f"no column of ids among {', '.join(table.first)[:80]}",
                  f"a header with a column {_ID_NAMES[0]!r}, or --id-column")
    return column


def _label(table: Table, lower: list[str], options: ReadOptions) -> int | None:
    if options.label_column:
        return _named(table, options.label_column)
    return lower.index("label") if "label" in lower else None


def _splits(table: Table, lower: list[str], options: ReadOptions) -> list[int]:
    if options.split_column:
        return [_named(table, options.split_column)]
    if "split" in lower:
        return [lower.index("split")]
    numbered = sorted((int(name.split(":")[1]), column) for column, name in enumerate(lower)
                   if _SEVERAL_SPLITS.fullmatch(name))
    if [number for number, _ in numbered] != list(range(len(numbered))):
        words = ", ".join(table.first[column] for _, column in numbered)[:80]
        raise bad(table.path, table.first_line, f"the columns {words}",
                  "splits numbered from 0 without gaps: split:0, split:1, ...")
    return [column for _, column in numbered]


def _features(table: Table, chosen: Columns, options: ReadOptions) -> list[int]:
    taken = {chosen.identity, chosen.label, *chosen.classes, *chosen.splits}
    skipped = {_named(table, name) for name in options.skip_columns or ()}
    wrong = next((k for k in sorted(skipped) if k in taken), None)
    if wrong is not None:
        raise ConfigError(f"--skip-columns {table.first[wrong]}: that column is the id, the label "
                          "or the split; expected columns of features")
    given = options.feature_columns
    if given is None:
        return [k for k in range(len(table.first)) if k not in taken | skipped]
    if given == [NO_COLUMNS] and NO_COLUMNS not in table.first:
        return []
    features = [_named(table, name) for name in given]
    if len(set(features)) != len(features):
        raise ConfigError(f"--feature-columns {','.join(given)}: expected every column once")
    answers = [k for k in features if k == chosen.label or k in chosen.classes]
    if answers:
        raise ConfigError(f"--feature-columns {','.join(given)}: {table.first[answers[0]]} holds "
                          "the classes, which are to be found out; expected other columns")
    return [k for k in features if k not in skipped]


def _notes(names: list[str], chosen: Columns) -> list[str]:
    """What the user should know if no column is called label: the answer may be among the
    features."""
    if chosen.label is not None or chosen.classes:
        return []
    features = [names[k] for k in chosen.features]
    likely = [name for name in features if _LIKE_A_LABEL.fullmatch(name)]
    used = f"; {', '.join(features[:8])}{' ...' if len(features) > 8 else ''} " \
           f"{'are features' if len(features) > 1 else 'is a feature'}" if features else ""
    return [f"no column is called label, so no node has a class{used}; if a column holds the "
            f"classes, give --label-column {likely[0] if likely else 'NAME'}"]


def _named(table: Table, name: str) -> int:
    if name not in table.first:
        raise ConfigError(f"{table.path} has no column {name!r}; expected one of "
                          f"{', '.join(table.first)[:200]}")
    return table.first.index(name)
