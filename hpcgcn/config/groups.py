"""The groups of settings that every run has; a strategy declares its own group."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.backend import BACKENDS, PRECISIONS
from hpcgcn.config.metric_names import METRICS
from hpcgcn.config.tracker_names import TRACKERS, read_trackers
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.parallel import STRATEGIES
from hpcgcn.setting import SettingsGroup, setting
from hpcgcn.trace.window import read_window

LARGEST_SEED = 2 ** 63 - 1


def _models() -> tuple[str, ...]:
    from hpcgcn.nn.models import MODELS
    return tuple(MODELS)


def _naming(text: str, find: str, what: str):
    """A help text with the names of the models that `find` (a function of nn.models) lists."""
    def described() -> str:
        from hpcgcn.nn import models
        return text.format(", ".join(getattr(models, find)(what)))
    return described


def _codec_help() -> str:
    from hpcgcn.exchange.codecs import CODEC_NAMES
    return f"* compression of halo rows: {', '.join(CODEC_NAMES)}"


def _per_hop(key: str):
    """Reads a setting that may differ from hop to hop."""
    def parse(text: str):
        from hpcgcn.exchange.hop_settings import read
        return read(key, text)
    return parse


def _class_weights(text: str):
    """Reads weights of classes."""
    from hpcgcn.parallel.class_weights import read_class_weights
    return read_class_weights(text)


@dataclass(frozen=True)
class ArchitectureSettings(SettingsGroup):
    """What the model looks like."""

    model: str = setting("sage", "which model", choices=_models)
    layers: int = setting(3, "number of layers", low=1, high=100_000)
    hidden: int = setting(128, "width of the hidden layers", low=1, high=1_000_000)
    dropout: float = setting(0.5, "dropout on the input of every layer", low=0.0, below=1.0)
    norm: str = setting("auto", _naming("LayerNorm after every layer but the last; auto: for {}; "
                                        "batch: BatchNorm over all nodes of all ranks instead",
                                        "models_where", "norm"),
                        choices=("auto", "yes", "batch", "no"))
    linear_layers: int = setting(0, _naming("make the last k layers plain linear, without "
                                            "aggregation ({})", "models_with", "linear_layers"),
                                 low=0)
    self_loops: str = setting("auto", _naming("count a node among its own neighbours; auto: for {}",
                                              "models_where", "self_loops"),
                              choices=("auto", "yes", "no"))
    weights_first: bool = setting(True, "multiply by a weight that narrows before aggregating, so "
                                        "that h W is sent; without: always h (gcn, sage)")
    initialisation: str = setting("glorot", "first weights, uniform within sqrt(6 / (inputs + "
                                            "outputs)); fan-in: within 1 / sqrt(inputs), and "
                                            "biases too, as in PipeGCN",
                                  choices=("glorot", "fan-in"))
    alpha: float = setting(0.1, _naming("share of the initial residual ({})", "models_with",
                                        "alpha"), low=0.0, high=1.0)
    lambda_: float = setting(0.5, _naming("strength of the identity mapping, beta_l = "
                                          "log(lambda / l + 1) ({})", "models_with", "lambda_"),
                             low=0.0)
    heads: int = setting(8, _naming("heads of attention, each of hidden / heads columns ({})",
                                    "models_with", "heads"), low=1, high=4096)
    output_heads: int = setting(1, _naming("heads of the last layer, whose mean is taken ({})",
                                           "models_with", "output_heads"), low=1, high=4096)
    attention_dropout: float = setting(0.0, _naming("dropout of coefficients ({})", "models_with",
                                                    "attention_dropout"), low=0.0, below=1.0)


@dataclass(frozen=True)
class TrainingSettings(SettingsGroup):
    """How it is trained."""

    epochs: int = setting(200, "passes over the whole graph", low=0)
    optimiser: str = setting("adam", "adam: weight decay as an L2 penalty; adamw: weight decay "
                                     "apart from the gradient; sgd: with momentum",
                             choices=("adam", "adamw", "sgd"))
    lr: float = setting(0.01, "learning rate", low=0.0)
    momentum: float = setting(0.9, "sgd: share of the last step that is taken again; 0: none",
                              low=0.0, below=1.0)
    lr_schedule: str = setting("constant", "schedule of the learning rate",
                               choices=("constant", "cosine"))
    warmup: int = setting(0, "epochs in which the learning rate rises from 0", low=0)
    weight_decay: float = setting(0.0, "penalty on all weights except those of norms", low=0.0)
    weight_decay_conv: float = setting(-1.0, "penalty for graph layers, if it is to differ; "
                                             "-1: the same", low=-1.0)
    clip: float = setting(0.0, "limit of the gradient's norm; 0: none", low=0.0)
    seed: int = setting(0, "seed of every random draw", low=0, high=LARGEST_SEED)
    inductive: bool = setting(False, "train on the subgraph of training nodes, validate without "
                                     "the test nodes, test on the whole graph")
    split_index: int = setting(0, "which split, for files that hold several", low=0)
    precompute: str = setting("auto", _naming("aggregate the input once at start ({}); its dropout "
                                              "then comes after the aggregation; auto: for dense "
                                              "features", "models_where", "precomputes_input"),
                              choices=("auto", "yes", "no"))
    needed_rows: bool = setting(True, "compute and exchange only the rows that the loss depends "
                                      "on; --no-needed-rows: all rows, for comparison")
    eval_every: int = setting(10, "epochs between evaluations; 0: only at the end", low=0)
    class_weights: str = setting("none", "weights of classes in the loss, which is divided by "
                                         "their sum over the training nodes: balanced (rare "
                                         "classes count more), or a number for each: 1,2.5,1",
                                 parse=_class_weights)
    metric: str = setting("auto", "what scores are, and so which epoch is the best; roc-auc and "
                                  "average-precision: for 2 classes, or several per node; auto: "
                                  "accuracy, or micro-f1 for several classes per node",
                          choices=("auto", *METRICS))
    patience: int = setting(-1, "stop after so many epochs without a better validation score, seen "
                                "at evaluations; -1: train all epochs", low=-1)

    def check(self, config):
        if self.patience == 0:
            raise ConfigError("patience = 0 would stop before a second evaluation: give the number "
                              "of epochs to wait for a better validation score, or -1 for all "
                              "epochs")
        if self.patience > 0 and not self.eval_every:
            raise ConfigError(f"patience = {self.patience} needs evaluations to watch, but "
                              "eval_every = 0 has none before the end: give --eval-every 1 or more")


@dataclass(frozen=True)
class CommunicationSettings(SettingsGroup):
    """What is exchanged between ranks, when, and how it is compressed (* may differ from hop to
    hop: VALUE,SELECTOR=VALUE, which `hpcgcn methods` explains)."""

    method: str = setting("overlap", "preset of communication settings; `hpcgcn methods` "
                                     "explains them",
                          choices=tuple(PRESETS))
    parallel: str = setting("auto", "strategy that divides the work; auto: partition on several "
                                    "ranks",
                            choices=("auto", *STRATEGIES))
    blocking: bool = setting(False, "disable communication/computation overlap")
    codec: str = setting("fp32", _codec_help, parse=_per_hop("codec"))
    rate: str = setting("auto", "* schedule of the codec's bits or compression ratio; `hpcgcn "
                                "methods` lists the forms", parse=_per_hop("rate"))
    rounding: str = setting("stochastic", "codecs bits and adaptive: stochastic is unbiased, "
                                          "nearest has a smaller error",
                            choices=("stochastic", "nearest"))
    code_parameters: str = setting("bf16", "codecs bits and adaptive: type in which quantisation "
                                           "scale and offset are sent",
                                   choices=("bf16", "fp32"))
    rescale: bool = setting(False, "codec subset: scale received columns by width / columns sent")
    staleness: str = setting("0", "* epochs by which halo rows are stale: 0 or 1; 1,narrow=0 "
                                  "keeps hops fresh at which h W is sent",
                             parse=_per_hop("staleness"))
    refresh_every: str = setting("0", "* with staleness: refresh interval; every F-th epoch is "
                                      "synchronous; 0: never", parse=_per_hop("refresh_every"))
    stale_error: str = setting("inf", "* with staleness: an epoch is synchronous if the rows' "
                                      "relative drift, last measured, is above this; inf: never",
                               parse=_per_hop("stale_error"))
    measure_error: str = setting("auto", "measure by how much rows change between epochs, and what "
                                         "codecs lose (on a sample of rows); auto: where rows are "
                                         "stale or compressed", choices=("auto", "all", "none"))
    first_epoch: str = setting("zeros", "with staleness, or the history of a pipeline: rows of the "
                                        "first epoch that are not there yet; sync: waited for",
                               choices=("zeros", "sync"))
    smoothing: str = setting("0", "* with staleness: decay of the moving average of halo rows; 0: "
                                  "no average", parse=_per_hop("smoothing"))
    smooth_correction: bool = setting(False, "bias-correct the moving averages (divide by 1 - "
                                             "gamma^n)")
    error_feedback: bool = setting(False, "add the compression error to the next epoch's message")
    residual: bool = setting(False, "compress the difference to what the receiver already has")
    change_threshold: float = setting(0.0, "with residual: send only rows that are off by more "
                                           "than this, relative to their largest element, from "
                                           "what the receiver has; 0: all rows",
                                      low=0.0, high=1.0)
    byte_budget: str = setting("0", "bytes that all halo messages of the run may take (1500000, "
                                    "20MB, 1.5GB): finds the rate schedule that spends them; "
                                    "0: no budget")

    def check(self, config):
        from hpcgcn.exchange.policies import check_combination
        check_combination(config)


@dataclass(frozen=True)
class MachineSettings(SettingsGroup):
    """What computes, where, and in which arithmetic."""

    backend: str = setting("auto", "what computes; auto: native, or reference without it",
                           choices=("auto", *BACKENDS))
    dtype: str = setting("float32", "arithmetic (float64: reference only)",
                         choices=("float32", "float64"))
    precision: str = setting("fp32", "bf16: rows that are gathered are stored in 16 bits, and cuda "
                                     "and reference round the inputs of matrix products; tf32 "
                                     "(cuda, reference): round these to 10 bits of mantissa; sums "
                                     "and weights stay fp32", choices=PRECISIONS)
    threads: int = setting(0, "threads per rank; 0: the host's cores divided by its ranks", low=0,
                           high=4096)
    ranks_per_host: int = setting(0, "count so many ranks in a row as one host; 0: hosts as MPI "
                                     "finds them (ranks that share memory)", low=0)
    mpi: str = setting("staged", "cuda: messages through host memory, or MPI reads device memory "
                       "(cuda-aware); auto: where the MPI library says it can and a test passes",
                       choices=("staged", "cuda-aware", "auto"))
    transport: str = setting("mpi", "cuda: what moves halo rows; nccl: from device to device in "
                                    "stream order, the host never waits (parallel = single, "
                                    "partition or features)", choices=("mpi", "nccl"))
    cuda_graphs: bool = setting(False, "cuda, one rank: record the kernels of an epoch and replay "
                                       "them with one launch")

    def check(self, config):
        if self.precision == "tf32" and self.backend not in ("cuda", "reference"):
            raise ConfigError("precision = 'tf32' needs backend = 'cuda' (or 'reference')")
        if self.precision != "fp32" and self.dtype == "float64":
            raise ConfigError(f"precision = '{self.precision}' does not go with dtype = 'float64'")
        if self.cuda_graphs and config.trace != "none":
            raise ConfigError("cuda_graphs does not go with trace: a replayed epoch is one launch")
        if self.cuda_graphs and self.backend != "cuda":
            raise ConfigError("cuda_graphs needs backend = 'cuda'")
        if self.cuda_graphs and config.norm == "batch":
            raise ConfigError("cuda_graphs does not go with norm = 'batch', whose sums go through "
                              "the host: leave cuda_graphs out, or choose norm = 'layer'")


@dataclass(frozen=True)
class RunSettings(SettingsGroup):
    """Where results go, when to save, when to stop."""

    name: str = setting("auto", "folder of the results; auto: <graph>-<model>-<method>")
    output: str = setting("runs", "where result folders go")
    resume: str = setting("never", "auto: continue from the last checkpoint if there is one; "
                                   "must: fail without one",
                          choices=("never", "auto", "must"))
    overwrite: bool = setting(False, "throw away what an earlier run of this name left")
    checkpoint_every: int = setting(50, "epochs between checkpoints; 0: only at the end", low=0)
    keep: int = setting(2, "checkpoints to keep", low=1)
    time_limit: float = setting(0.0, "stop cleanly after this many minutes; 0: no limit", low=0.0)
    stall_timeout: float = setting(300.0, "end the job if a rank makes no progress for this many "
                                          "seconds; 0: never",
                                   low=0.0, high=1e9)
    quiet: bool = setting(False, "print only the summary")
    trace: str = setting("none", "record what every rank does, and when, for `hpcgcn trace`, "
                                 "`profile` and `report`: an epoch (7), epochs (5-8), or last:4, "
                                 "which --trace alone means; none: nothing is recorded",
                         parse=read_window)
    tracker: str = setting("none", "also write the loss and scores of every epoch for "
                                   f"{', '.join(TRACKERS)} "
                                   "(some, separated by commas)", parse=read_trackers)
    log_format: str = setting("text", "messages for people, or one JSON object per line",
                              choices=("text", "json"))
