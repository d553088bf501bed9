"""The published methods as rows of a table: a name, what it is, and the settings it stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A method: settings that differ from the defaults."""

    summary: str
    settings: dict


# Where h W is sent a stale message would carry a stale weight, and it is narrow: there it is fresh.
# And while rows drift fast: with few labels, stale rows of the first epochs cost much accuracy.
_STALE = {"staleness": "1,narrow=0", "stale_error": "0.1"}
# As the papers do it: all hops stale, h is sent, and the input is aggregated once.
_PAPER = {"staleness": "1", "weights_first": False, "precompute": "yes"}

PRESETS: dict[str, Preset] = {
    "vanilla": Preset("synchronous fp32, waits for every message at once (the papers' baseline)",
                      {"blocking": True}),
    "overlap": Preset("synchronous fp32; work on interior rows overlaps the halo exchange; exact",
                      {}),
    "pipegcn": Preset("PipeGCN: features and gradients one epoch stale, fresh where h W is sent",
                      {**_STALE}),
    "pipegcn-f": Preset("PipeGCN with smoothed features",
                        {**_STALE, "smoothing": "features=0.95"}),
    "pipegcn-g": Preset("PipeGCN with smoothed gradients",
                        {**_STALE, "smoothing": "gradients=0.95"}),
    "pipegcn-gf": Preset("PipeGCN with both smoothed",
                         {**_STALE, "smoothing": "0.95"}),
    "pipegcn-paper": Preset("PipeGCN as published: every hop stale, h is sent and meets today's "
                            "weight (here after dropout, there before)", {**_PAPER}),
    "sylvie-s": Preset("Sylvie: 1-bit stochastic quantisation, synchronous", {"codec": "1bit"}),
    "sylvie-a": Preset("Sylvie: 1 bit and one epoch stale, every 10th epoch synchronous, fresh "
                       "where h W is sent",
                       {**_STALE, "codec": "1bit", "refresh_every": "10"}),
    "sylvie-paper": Preset("Sylvie as published, without synchronous epochs: 1 bit, every hop "
                           "stale, h is sent", {**_PAPER, "codec": "1bit"}),
    "varco": Preset("VARCO: random columns, ratio 128 falling to 1 with slope 5; last layer "
                    "uncompressed",
                    {"codec": "subset,last=fp32", "rate": "linear:128:1:5"}),
    "mixgcn": Preset("MixGCN: ranks aggregate columns of all nodes and update rows; volume "
                     "constant in the ranks",
                     {"parallel": "features"}),
    "mixgcn-moa": Preset("MixGCN with roles: half of the ranks only aggregate, the others only "
                         "update, in a pipeline of row blocks",
                         {"parallel": "features", "sparse_ranks": -1, "feature_blocks": 0}),
    "gnnpipe": Preset("GNNPipe: ranks hold consecutive layers, chunks of nodes pass through; "
                      "volume independent of depth",
                      {"parallel": "layers"}),
    "gnnpipe-hybrid": Preset("GNNPipe with several ranks per stage, which exchange boundary rows",
                             {"parallel": "layers", "partitions_per_stage": 0}),
    "no-communication": Preset("nothing is exchanged in training, as if edges between ranks were "
                               "cut: the baseline of what communication is worth",
                               {"codec": "none"}),
    "bns": Preset("BNS-GCN: a tenth of the boundary nodes, drawn each epoch, scaled by 10 "
                  "(--rate 2: half, costs less accuracy)",
                  {"codec": "nodes", "rate": "10"}),
}
