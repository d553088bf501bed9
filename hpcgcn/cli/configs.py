"""hpcgcn configs: settings that others published, to list and to copy."""

from __future__ import annotations


def add_arguments(parser):
    """Declare the arguments of this command."""
    commands = parser.add_subparsers(dest="action", metavar="list|copy", required=True)
    commands.add_parser("list", help="names, and what each is for",
                        description="names, and what each is for", allow_abbrev=False)
    copy = commands.add_parser("copy", help="write one to edit, and to train with --config",
                               description="write one to edit, and to train with --config",
                               allow_abbrev=False)
    copy.add_argument("name", help="one of the names that `hpcgcn configs list` prints")
    copy.add_argument("-o", "--output", metavar="RUN.toml",
                      help="the file to write [NAME.toml]")


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.config.published import published
    known = published()
    if args.action == "list":
        width = max(map(len, known))
        for name, text in known.items():
            print(f"{name:<{width}}  {_title(text)}")
        return 0
    from hpcgcn.files.atomic import atomic_text
    text = known[_known(args.name, known)]
    path = args.output or f"{args.name.removesuffix('.toml')}.toml"
    atomic_text(path, text)
    print(f"written to {path}: hpcgcn train GRAPH --config {path}")
    return 0


def _title(text: str) -> str:
    """The first line of the comment that each begins with."""
    return text.partition("\n")[0].lstrip("# ")


def _known(name: str, known: dict[str, str]) -> str:
    import difflib

    from hpcgcn.errors import ConfigError
    name = name.removesuffix(".toml")
    if name in known:
        return name
    near = difflib.get_close_matches(name[:100], known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "`hpcgcn configs list` prints all names"
    raise ConfigError(f"there are no settings called {name[:100]!r}: {hint}")
