"""The models and settings whose gradients are checked: every branch of the builder, forward and
backward."""

from __future__ import annotations

# wider and narrower than the 6 features: the order of aggregation and transform changes
WIDE, NARROW = 9, 5
BASE = {"layers": 3, "hidden": NARROW, "dropout": 0.5, "seed": 3, "dtype": "float64",
        "method": "overlap"}

# name: (what differs in the graph, what differs in the settings)
CASES: dict[str, tuple[dict, dict]] = {}


def case(name: str, graph: dict | None = None, **settings):
    CASES[name] = (graph or {}, BASE | settings)


for model in ("gcn", "sage"):
    case(f"{model}-precomputed", model=model, norm="no")
    case(f"{model}-precomputed-norm", model=model, norm="yes")
    case(f"{model}-transform-first", model=model, norm="no", precompute="no")
    case(f"{model}-transform-first-norm", model=model, norm="yes", precompute="no")
    case(f"{model}-aggregate-first", model=model, norm="no", precompute="no", hidden=WIDE)
    case(f"{model}-aggregate-first-norm", model=model, norm="yes", precompute="no", hidden=WIDE)
    case(f"{model}-widening-to-classes", {"n_classes": 11}, model=model, norm="yes",
         precompute="no")
    case(f"{model}-equal-widths", {"n_classes": NARROW, "n_features": NARROW}, model=model,
         norm="no", precompute="no", layers=4)
    case(f"{model}-sparse", {"sparse": True}, model=model, norm="no")
    case(f"{model}-sparse-norm", {"sparse": True}, model=model, norm="yes", hidden=WIDE)
    case(f"{model}-sparse-precomputed", {"sparse": True}, model=model, norm="no", precompute="yes")
    case(f"{model}-trailing-linear", model=model, norm="yes", layers=4, linear_layers=2)
    case(f"{model}-trailing-linear-many", {"n_classes": NARROW}, model=model, norm="no", layers=6,
         linear_layers=5, precompute="no")
    case(f"{model}-trailing-linear-sparse", {"sparse": True}, model=model, norm="no",
         linear_layers=1)
    case(f"{model}-one-layer", model=model, layers=1, precompute="no")
    case(f"{model}-one-layer-precomputed", model=model, layers=1)
    case(f"{model}-multilabel", {"multilabel": True}, model=model)
    case(f"{model}-directed", {"directed": True}, model=model, norm="yes", precompute="no")
    case(f"{model}-directed-wide", {"directed": True}, model=model, norm="no", precompute="no",
         hidden=WIDE)
    case(f"{model}-no-dropout", model=model, dropout=0.0)
    case(f"{model}-weighted", {"weighted": True}, model=model, precompute="no")
    case(f"{model}-weighted-directed", {"weighted": True, "directed": True}, model=model)
case("gcn-without-self-loops", model="gcn", self_loops="no", precompute="no")
case("sage-with-self-loops", model="sage", self_loops="yes", precompute="no")
for model in ("gcnii", "resgcn"):
    case(model, model=model, layers=4)
    case(f"{model}-one-layer", model=model, layers=1)
    case(f"{model}-deep", model=model, layers=8)
    case(f"{model}-sparse", {"sparse": True}, model=model)
    case(f"{model}-multilabel", {"multilabel": True}, model=model)
    case(f"{model}-directed", {"directed": True}, model=model)
    case(f"{model}-no-dropout", model=model, dropout=0.0)
    case(f"{model}-classes-as-hidden", {"n_classes": NARROW}, model=model)
    case(f"{model}-weighted", {"weighted": True}, model=model)
case("gcnii-strong-mixing", model="gcnii", alpha=0.5, **{"lambda": 1.5})
for drop in (0.0, 0.4):
    case(f"gat-{drop}", model="gat", hidden=6, heads=3, attention_dropout=drop)
case("gat-output-heads", model="gat", hidden=8, heads=2, output_heads=3, attention_dropout=0.4)
case("gat-one-layer", model="gat", layers=1, output_heads=2)
case("gat-sparse-norm", {"sparse": True}, model="gat", hidden=6, heads=2, norm="yes")
case("gat-directed", {"directed": True}, model="gat", hidden=6, heads=3, attention_dropout=0.4)
case("gat-without-self-loops", {"directed": True}, model="gat", hidden=6, heads=3, self_loops="no")
case("gat-multilabel", {"multilabel": True}, model="gat", hidden=9, heads=9)
for model in ("gcn", "sage", "resgcn"):
    case(f"{model}-batch-norm", model=model, norm="batch")
case("gcn-batch-norm-sparse", {"sparse": True}, model="gcn", norm="batch", hidden=WIDE)
case("gcn-batch-norm-trailing-linear", {"directed": True}, model="gcn", norm="batch", layers=5,
     linear_layers=3, precompute="no")
case("sage-batch-norm-weighted", {"weighted": True}, model="sage", norm="batch", precompute="no")
case("gat-batch-norm", model="gat", hidden=6, heads=2, norm="batch", attention_dropout=0.4)
case("appnp", model="appnp", layers=5, alpha=0.2)
case("appnp-sparse-directed", {"sparse": True, "directed": True}, model="appnp")
case("appnp-weighted-multilabel", {"weighted": True, "multilabel": True}, model="appnp")
case("gin", model="gin")
case("gin-norm-not-precomputed", model="gin", norm="yes", precompute="no")
case("gin-batch-norm-wide", {"directed": True}, model="gin", norm="batch", hidden=WIDE,
     precompute="no")
case("gin-sparse-weighted", {"sparse": True, "weighted": True}, model="gin")
case("gin-one-layer-multilabel", {"multilabel": True}, model="gin", layers=1)
