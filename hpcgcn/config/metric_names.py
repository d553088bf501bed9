"""The metrics that a run can be scored by, and which labels each is for."""

from __future__ import annotations

from hpcgcn.errors import ConfigError

# Name -> how it is written in results.
METRICS = {"accuracy": "accuracy", "micro-f1": "micro-F1", "macro-f1": "macro-F1",
           "roc-auc": "ROC AUC", "average-precision": "average precision"}
RANKED = ("roc-auc", "average-precision")
ALL = "all"


def metrics_for(multilabel: bool, n_classes: int) -> tuple[str, ...]:
    """Names of the metrics that labels of this kind can be scored by."""
    if multilabel:
        return tuple(name for name in METRICS if name != "accuracy")
    return tuple(name for name in METRICS if name not in RANKED or n_classes == 2)


def chosen_metric(name: str, multilabel: bool, n_classes: int) -> str:
    """The metric that the setting means for these labels; ConfigError if it is not for them."""
    if name == "auto":
        return "micro-f1" if multilabel else "accuracy"
    fitting = metrics_for(multilabel, n_classes)
    if name not in METRICS:
        raise ConfigError(f"there is no metric '{name[:40]}'; choose one of {', '.join(fitting)}")
    if name not in fitting:
        kind = ("several classes per node" if multilabel
                else f"one of {n_classes} classes per node")
        reason = ("accuracy is for one class per node" if multilabel else
                  f"{name} ranks nodes by one score: it is for 2 classes, or several classes per "
                  "node")
        raise ConfigError(f"metric = '{name}', but the graph has {kind}, and {reason}; choose "
                          f"one of {', '.join(fitting)}")
    return name
