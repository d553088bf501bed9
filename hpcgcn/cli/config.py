"""hpcgcn config: all settings with their defaults and meaning, as TOML to start from."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    from hpcgcn.exchange.presets import PRESETS
    parser.add_argument("--method", choices=tuple(PRESETS), default="overlap",
                        help="with the settings of this preset")


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.config import make_config, to_toml
    print(to_toml(make_config({"method": args.method}), comments=True), end="")
    return 0
