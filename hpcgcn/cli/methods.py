"""hpcgcn methods: the published methods, as the settings they stand for."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args) -> int:
    """Run this command; returns the exit code."""
    import json

    from hpcgcn.exchange.hop_settings import READERS
    from hpcgcn.exchange.per_hop import SYNTAX
    from hpcgcn.exchange.presets import PRESETS
    from hpcgcn.exchange.schedules import FORMS
    from hpcgcn.setting import flag_of
    if args.json:
        print(json.dumps({name: {"summary": p.summary, "settings": p.settings}
                          for name, p in PRESETS.items()}, indent=2))
        return 0
    for name, preset in PRESETS.items():
        print(f"{name:<14} {preset.summary}")
        settings = "  ".join(f"{key}={value}" for key, value in preset.settings.items())
        print(f"{'':<14} {settings or '(the defaults)'}")
    print(f"""
Every setting can be given on its own as well: --method sylvie-a --refresh-every 20
{', '.join(flag_of(key) for key in READERS)} may differ from hop to hop:
{SYNTAX}.
    --staleness 1,narrow=0              all hops stale, but fresh where h W is sent
    --codec 1bit,last=fp32              the last hop as it is
    --rate linear:128:1:5,last=2        another schedule at the last hop
    --smoothing features=0.95           features only
    --staleness 1,gradients.2=0         one direction of hop 2; later entries win
A run prints what results, hop by hop, when it starts.
Rates are written as {', '.join(FORMS)}
(bits for codec bits, their mean for adaptive, a compression ratio for subset and nodes).""")
    return 0
