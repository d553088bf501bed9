"""hpcgcn completion: what a shell completes, written from the commands as they are."""

from __future__ import annotations

import argparse

EPILOG = """bash: hpcgcn completion bash > ~/.local/share/bash-completion/completions/hpcgcn
zsh: hpcgcn completion zsh > a folder of your $fpath, as _hpcgcn"""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=("bash", "zsh"), help="for which shell")


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.cli import COMMANDS, command_parser
    words = {name: _words(command_parser(name)) for name in COMMANDS}
    values = {flag: choices for flags in words.values() for flag, choices in flags.items()
              if choices}
    print(_bash(words, values) if args.shell == "bash" else _zsh(words, values, COMMANDS), end="")
    return 0


def _words(parser: argparse.ArgumentParser) -> dict[str, tuple[str, ...]]:
    """{flag or subcommand: the values that a flag may have}"""
    from hpcgcn.config import FIELDS
    from hpcgcn.setting import choices_of
    words: dict[str, tuple[str, ...]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words |= dict.fromkeys(action.choices, ())
            for sub in action.choices.values():
                words |= _words(sub)
        elif action.help is not argparse.SUPPRESS:
            choices = tuple(map(str, action.choices or ()))
            if not choices and action.nargs != 0 and action.dest in FIELDS:
                choices = tuple(map(str, choices_of(FIELDS[action.dest])))
            words |= {flag: choices for flag in action.option_strings if flag.startswith("--")}
            if not action.option_strings and choices:
                words |= dict.fromkeys(choices, ())
    return words


def _bash(words: dict, values: dict) -> str:
    cases = "".join(f"    {name}) words={_quoted(flags)} ;;\n" for name, flags in words.items())
    choices = "".join(f"    {flag}) words={_quoted(choice)}; flags=1 ;;\n"
                      for flag, choice in values.items())
    return f"""# bash completion of hpcgcn; made by `hpcgcn completion bash`
_hpcgcn() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words="" flags="" k command=""
  for ((k = 1; k < COMP_CWORD; k++)); do
    [[ ${{COMP_WORDS[k]}} != -* ]] && {{ command=${{COMP_WORDS[k]}}; break; }}
  done
  case "$command" in
    "") words={_quoted(words)} ;;
{cases}  esac
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{choices}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  # Files where none of the words is meant.
  if [[ -n $command && -z $flags && $word != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _hpcgcn hpcgcn
"""


def _zsh(words: dict, values: dict, commands: dict) -> str:
    described = "\n".join(f"    '{name}:{text.replace(':', ' ')}'" for name, text in
                          ((name, text.replace("'", "’")) for name, text in commands.items()))
    cases = "".join(f"    {name}) words_here=({' '.join(flags)}) ;;\n"
                    for name, flags in words.items())
    choices = "".join(f"    {flag}) compadd -- {' '.join(choice)}; return ;;\n"
                      for flag, choice in values.items())
    return f"""#compdef hpcgcn
# zsh completion of hpcgcn; made by `hpcgcn completion zsh`
_hpcgcn() {{
  local -a commands words_here
  commands=(
{described}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[CURRENT-1] in
{choices}  esac
  case $words[2] in
{cases}  esac
  compadd -- $words_here
  [[ $words[CURRENT] == -* ]] || _files
}}
if [[ $funcstack[1] == _hpcgcn ]]; then _hpcgcn "$@"; else compdef _hpcgcn hpcgcn; fi
"""


def _quoted(words) -> str:
    return '"' + " ".join(words) + '"'
