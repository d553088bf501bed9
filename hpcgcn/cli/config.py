"""hpcgcn config: all settings with their defaults and meaning, as TOML to start from; or a check of
a file of settings."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    from hpcgcn.exchange.presets import PRESETS
    parser.add_argument("--method", choices=tuple(PRESETS), default="overlap",
                        help="with the settings of this preset")
    parser.add_argument("--check", metavar="RUN.toml",
                        help="read a file of settings as `train --config` would, and say what it "
                             "sets")


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.config import make_config, to_toml
    if args.check:
        return _check(args.check)
    print(to_toml(make_config({"method": args.method}), comments=True), end="")
    return 0


def _check(path: str) -> int:
    from hpcgcn.cli import text
    from hpcgcn.config import FIELDS, make_config
    values = make_config(toml_path=path).as_dict()
    changed = [(name, value) for name, value in values.items() if value != FIELDS[name].default]
    print(f"{path}: {len(values)} settings are right; {len(changed)} are not the defaults")
    if changed:
        print(text.pairs([(f"  {name}", value) for name, value in changed]))
    return 0
