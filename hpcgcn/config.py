"""All settings of a run: one dataclass, from which flags, TOML keys and their documentation are made.

Later wins: defaults, the preset of `method`, the TOML file, flags. Flags and keys have the same names (`--weight-decay`,
`weight_decay`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from dataclasses import dataclass, field

from hpcgcn.errors import ConfigError
from hpcgcn.exchange.codecs import CODEC_NAMES
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.nn.models import MODELS


def setting(default, group: str, help: str, *, choices=None, low=None, high=None, below=None):
    """A field with what flags, checks and documentation need. Bounds: low <= value <= high, value < below."""
    return field(default=default, metadata={"group": group, "help": help, "choices": choices, "low": low, "high": high,
                                            "below": below})


@dataclass
class Config:
    """The settings of one run."""

    model: str = setting("sage", "model", "which network", choices=MODELS)
    layers: int = setting(3, "model", "number of layers", low=1)
    hidden: int = setting(128, "model", "width of the hidden layers", low=1)
    dropout: float = setting(0.5, "model", "dropout on the input of every layer", low=0.0, below=1.0)
    norm: str = setting("auto", "model", "LayerNorm after every layer but the last; auto: for sage",
                        choices=("auto", "yes", "no"))
    linear_layers: int = setting(0, "model", "make the last k layers plain linear (gcn, sage)", low=0)
    self_loops: str = setting("auto", "model", "count a node among its own neighbours; auto: not for sage",
                              choices=("auto", "yes", "no"))
    alpha: float = setting(0.1, "model", "gcnii: share of the initial residual", low=0.0, high=1.0)
    lambda_: float = setting(0.5, "model", "gcnii: strength of the identity mapping, beta_l = log(lambda / l + 1)", low=0.0)

    epochs: int = setting(200, "training", "passes over the whole graph", low=0)
    lr: float = setting(0.01, "training", "Adam's learning rate", low=0.0)
    lr_schedule: str = setting("constant", "training", "how the learning rate moves", choices=("constant", "cosine"))
    warmup: int = setting(0, "training", "epochs in which the learning rate rises from 0", low=0)
    weight_decay: float = setting(0.0, "training", "L2 penalty on all weights (norms excepted)", low=0.0)
    weight_decay_conv: float = setting(-1.0, "training", "another L2 penalty for graph layers; -1: the same", low=-1.0)
    clip: float = setting(0.0, "training", "limit of the gradient's norm; 0: none", low=0.0)
    seed: int = setting(0, "training", "seed of every random draw", low=0)
    inductive: bool = setting(False, "training", "train on the subgraph of train nodes, evaluate on the whole graph")
    split_index: int = setting(0, "training", "which split of a file that holds several", low=0)
    precompute: str = setting("auto", "training", "aggregate the input once at start (gcn, sage); its dropout then comes after "
                              "the aggregation; auto: for dense features", choices=("auto", "yes", "no"))
    eval_every: int = setting(10, "training", "epochs between evaluations; 0: only at the end", low=0)

    method: str = setting("overlap", "communication", "preset of the settings below", choices=tuple(PRESETS))
    parallel: str = setting("auto", "communication", "how the graph is divided; auto: partition on several ranks",
                            choices=("auto", "single", "partition", "features", "layers"))
    stages: int = setting(0, "communication", "layers: stages of consecutive layers; 0: ranks / ways", low=0)
    ways: int = setting(1, "communication", "layers: ranks that share a stage, each with other nodes; 0: as few as possible, "
                        "but more than one", low=0)
    chunks: int = setting(0, "communication", "layers: chunks of nodes that pass through the stages; 0: four a rank", low=0)
    history: str = setting("snapshot", "communication", "layers: how a chunk reads chunks that come later: as a snapshot has "
                           "them; none: it waits for them, exactly", choices=("snapshot", "none"))
    history_hold: int = setting(23, "communication", "layers: epochs for which a snapshot is held", low=1)
    history_gradients: str = setting("zero", "communication", "layers: gradients of chunks that come later going back: zero, "
                                     "and those across chunks twice; stale: last epoch's", choices=("zero", "stale"))
    shuffle_chunks: bool = setting(True, "communication", "layers: another order of the chunks every epoch")
    recompute: bool = setting(True, "communication", "layers: make activations again in backward where that frees an "
                              "array (gcnii)")
    feature_blocks: int = setting(4, "communication", "features: blocks into which a transpose is cut, so that one travels while "
                                  "the next is computed; 0: the fastest of 1, 2, 4, 8 and 16, tried at start (15 passes)", low=0)
    sparse_ranks: int = setting(0, "communication", "features: this many ranks only aggregate, the others only update; 0: all do "
                                "both; -1: half of them", low=-1)
    sparse_backend: str = setting("auto", "machine", "features: backend of the ranks that only aggregate; auto: as backend",
                                  choices=("auto", "reference", "native", "cuda"))
    blocking: bool = setting(False, "communication", "wait for messages at once instead of working meanwhile")
    codec: str = setting("fp32", "communication", "how halo rows are coded", choices=CODEC_NAMES)
    rate: str = setting("auto", "communication", "schedule of the codec's bits or ratio (hpcgcn methods lists the forms)")
    rounding: str = setting("stochastic", "communication", "of codec bits: stochastic is unbiased, nearest has less error",
                            choices=("stochastic", "nearest"))
    code_parameters: str = setting("bf16", "communication", "how zero point and step of codec bits travel",
                                   choices=("bf16", "fp32"))
    rescale: bool = setting(False, "communication", "codec subset: multiply what arrives by width / columns sent")
    compress_last: bool = setting(True, "communication", "code the last layer's exchange too")
    staleness_features: int = setting(0, "communication", "use halo features of this many epochs ago", choices=(0, 1))
    staleness_gradients: int = setting(0, "communication", "use halo gradients of this many epochs ago", choices=(0, 1))
    refresh_every: int = setting(0, "communication", "with staleness: every F-th epoch is synchronous; 0: never", low=0)
    first_epoch: str = setting("zeros", "communication", "with staleness: what the first epoch uses",
                               choices=("zeros", "sync"))
    smooth_features: float = setting(0.0, "communication", "with staleness: running average of halo features", low=0.0, below=1.0)
    smooth_gradients: float = setting(0.0, "communication", "with staleness: running average of halo gradients", low=0.0,
                                      below=1.0)
    smooth_correction: bool = setting(False, "communication", "divide the running averages by 1 - gamma^n")
    error_feedback: bool = setting(False, "communication", "add what the code lost to the next epoch's message")
    residual: bool = setting(False, "communication", "code the difference to what the receiver already has")
    byte_budget: str = setting("0", "communication", "bytes that all halo messages of the run may take (1500000, 20MB, 1.5GB): "
                               "finds the rate schedule that spends them; 0: no budget")

    backend: str = setting("auto", "machine", "what computes; auto: native, or reference without it",
                           choices=("auto", "reference", "native", "cuda"))
    dtype: str = setting("float32", "machine", "arithmetic (float64: reference only)", choices=("float32", "float64"))
    precision: str = setting("fp32", "machine", "how rows that are gathered are stored", choices=("fp32", "bf16"))
    threads: int = setting(0, "machine", "threads a rank; 0: the host's cores divided by its ranks", low=0)
    mpi: str = setting("staged", "machine", "cuda: messages go through host memory, or MPI reads device memory",
                       choices=("staged", "cuda-aware"))
    partition_method: str = setting("metis", "machine", "if the graph is not partitioned yet", choices=("metis", "random", "block"))
    partition_objective: str = setting("volume", "machine", "what metis minimises", choices=("volume", "cut"))

    name: str = setting("auto", "run", "folder of the results; auto: <graph>-<model>-<method>")
    output: str = setting("runs", "run", "where result folders go")
    resume: str = setting("never", "run", "never; auto: from the last checkpoint if there is one; must: fail without one",
                          choices=("never", "auto", "must"))
    overwrite: bool = setting(False, "run", "throw away what an earlier run of this name left")
    checkpoint_every: int = setting(50, "run", "epochs between checkpoints; 0: only at the end", low=0)
    keep: int = setting(2, "run", "checkpoints to keep", low=1)
    time_limit: float = setting(0.0, "run", "stop cleanly after this many minutes; 0: no limit", low=0.0)
    stall_timeout: float = setting(300.0, "run", "end the job if a rank makes no progress for this many seconds; 0: wait for ever",
                                   low=0.0)
    quiet: bool = setting(False, "run", "print only the summary")


GROUPS = ("model", "training", "communication", "machine", "run")
FIELDS = {f.name: f for f in dataclasses.fields(Config)}


def key_of(name: str) -> str:
    """The TOML key and flag of a field: `lambda` is `lambda_` in Python only."""
    return name.rstrip("_")


FIELD_OF_KEY = {key_of(name): name for name in FIELDS}


def field_named(key: str, where: str) -> dataclasses.Field:
    """The field of a key written by a user; an unknown one is an error that names the nearest."""
    name = FIELD_OF_KEY.get(key.replace("-", "_"))
    if name is None:
        near = difflib.get_close_matches(key.replace("-", "_"), FIELD_OF_KEY, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "hpcgcn config lists all keys"
        raise ConfigError(f"unknown key '{key}' in {where}: {hint}")
    return FIELDS[name]


def checked(spec: dataclasses.Field, value, where: str):
    """The value in the field's type and within its bounds."""
    wanted, given = type(spec.default), value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if wanted is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    key, meta = key_of(spec.name), spec.metadata
    if type(value) is not wanted:
        raise ConfigError(f"{key} = {given!r} in {where}: expected {_type_name(wanted)}")
    if meta["choices"] and value not in meta["choices"]:
        near = difflib.get_close_matches(str(value), [str(c) for c in meta["choices"]], n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise ConfigError(f"{key} = {value!r} in {where}: choose one of {', '.join(map(str, meta['choices']))}{hint}")
    if wanted is float and not math.isfinite(value):
        raise ConfigError(f"{key} = {value!r} in {where}: expected a finite number")
    for bound, wrong, words in (("low", lambda v, b: v < b, "at least"), ("high", lambda v, b: v > b, "at most"),
                                ("below", lambda v, b: v >= b, "less than")):
        if meta[bound] is not None and wrong(value, meta[bound]):
            raise ConfigError(f"{key} = {value!r} in {where}: must be {words} {meta[bound]}")
    return value


def _type_name(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}[kind]


def read_toml(path: str) -> dict:
    """Keys of a TOML file as {field: value}, checked."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    flat = {}
    for key, value in table.items():
        if isinstance(value, dict):
            raise ConfigError(f"[{key}] in {path}: keys are not grouped in tables; write them at the top level")
        spec = field_named(key, path)
        flat[spec.name] = checked(spec, value, path)
    return flat


def make_config(given: dict | None = None, toml_path: str | None = None, where: str = "the settings") -> Config:
    """The effective configuration from explicit settings {key: value} and an optional TOML file."""
    chosen = read_toml(toml_path) if toml_path else {}
    for key, value in (given or {}).items():
        spec = field_named(key, where)
        chosen[spec.name] = checked(spec, value, where)
    method = chosen.get("method", FIELDS["method"].default)
    preset = dict(PRESETS[method].settings)
    if "codec" in chosen:
        preset.pop("rate", None)         # it was meant for the preset's own codec
    return Config(**(preset | chosen))


def to_toml(config: Config, comments: bool = False) -> str:
    """All settings as TOML, grouped; with `comments` each with its meaning."""
    lines = []
    for group in GROUPS:
        lines.append(f"{'' if not lines else chr(10)}# {group}")
        for name, spec in FIELDS.items():
            if spec.metadata["group"] != group:
                continue
            line = f"{key_of(name)} = {_toml_value(getattr(config, name))}"
            if comments:
                choices = spec.metadata["choices"]
                note = spec.metadata["help"] + (f" ({' | '.join(map(str, choices))})" if choices else "")
                line = f"{line:<32} # {note}"
            lines.append(line)
    return "\n".join(lines) + "\n"


def _toml_value(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def add_flags(parser):
    """One flag a setting, named like its key; absent flags leave no trace, so that presets and TOML can speak."""
    import argparse
    groups = {name: parser.add_argument_group(name) for name in GROUPS}
    for name, spec in FIELDS.items():
        flag, kind, meta = "--" + key_of(name).replace("_", "-"), type(spec.default), spec.metadata
        text = meta["help"].replace("%", "%%") + f" [{str(spec.default).lower() if kind is bool else spec.default}]"
        options = {"dest": name, "default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            groups[meta["group"]].add_argument(flag, action=argparse.BooleanOptionalAction, **options)
            continue
        if name == "resume":
            # `--resume` alone is the common wish: continue from the last checkpoint.
            options |= {"nargs": "?", "const": "must"}
        groups[meta["group"]].add_argument(flag, type=kind, metavar=name.rstrip("_").upper(), **options)
