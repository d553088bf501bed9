"""hpcgcn methods: the published methods, as the settings they stand for."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args) -> int:
    """Run this command; returns the exit code."""
    import json

    from hpcgcn.exchange.presets import PRESETS
    from hpcgcn.exchange.schedules import FORMS
    if args.json:
        print(json.dumps({name: {"summary": p.summary, "settings": p.settings}
                          for name, p in PRESETS.items()}, indent=2))
        return 0
    for name, preset in PRESETS.items():
        print(f"{name:<12} {preset.summary}")
        settings = "  ".join(f"{key}={value}" for key, value in preset.settings.items())
        print(f"{'':<12} {settings or '(the defaults)'}")
    print("\nEvery setting can be given on its own as well: --method sylvie-a --refresh-every 20 "
          "--smooth-gradients 0.95\n"
          "Rates are written as " + ", ".join(FORMS) + "\n"
          "(bits for codec bits, a compression ratio for subset and nodes).")
    return 0
