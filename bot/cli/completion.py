"""`signal-tee-bot completion`: what a shell offers when somebody presses the Tab key.

The script that a shell loads asks this command with the words typed so far, so it never differs
from the program that is installed.
"""

import sys
from argparse import SUPPRESS, Action, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bot.cli.arguments import command_line
from bot.cli.command_parser import CommandParser
from bot.cli.exit_codes import OK

FILES: Final = ":files"
"""In place of an answer: the shell completes names of files."""

BASH: Final = r"""_signal_tee_bot() {
    local line program=${1/#\~/$HOME}
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = :files ]; then
            compopt -o default 2> /dev/null
        else
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <(
        printf '%s\n' "${COMP_WORDS[@]:1:COMP_CWORD}" |
            "$program" completion bash --words 2> /dev/null
    )
}
complete -F _signal_tee_bot signal-tee-bot
"""
ZSH: Final = r"""#compdef signal-tee-bot
_signal_tee_bot() {
    local line program=${${(Q)words[1]}/#\~/$HOME}
    local -a found typed=("${(@Q)words[2,CURRENT]}")
    for line in ${(f)"$(print -rl -- "$typed[@]" | "$program" completion zsh --words 2> /dev/null)"}
    do
        if [[ $line == :files ]]; then
            _files
            return
        else
            found+=("${line/$'\t'/:}")
        fi
    done
    (( $#found )) && _describe signal-tee-bot found
}
if [[ $funcstack[1] == _signal_tee_bot ]]; then
    _signal_tee_bot "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _signal_tee_bot signal-tee-bot
fi
"""
FISH: Final = r"""function __signal_tee_bot
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~' "$HOME" -- $words[1])
    set -e words[1]
    command -q $program; or return
    for line in (printf '%s\n' $words "$current" | $program completion fish --words 2> /dev/null)
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            printf '%s\n' $line
        end
    end
end
complete -c signal-tee-bot -f -a '(__signal_tee_bot)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(arguments: Namespace) -> int:
    """Print a shell's script, or the answers to its question; return the exit code."""
    if arguments.words:
        typed = sys.stdin.buffer.read().decode(errors="replace").removesuffix("\n")
        for answer in answers(typed.split("\n")):
            print(answer)
    else:
        print(SCRIPTS[arguments.shell], end="")
    return OK


def answers(words: Sequence[str]) -> Iterator[str]:
    """Yield how the last word may go on: a word and, behind a tab, what it means.

    Args:
        words: typed behind the program's name; the last one, perhaps empty, is not finished.
    """
    *finished, current = words
    parser, given, option = _place(finished)
    if option is not None:
        yield from _values(option, current)
    elif current.startswith("-"):
        yield from _options(parser, current)
    elif parser.commands:
        for name, command in parser.commands.items():
            if name.startswith(current):
                yield f"{name}\t{command.summary}"
    else:
        positional = [action for action in parser.arguments if not action.option_strings]
        for action in positional[given : given + 1]:
            yield from _values(action, current)


def _place(words: Sequence[str]) -> tuple[CommandParser, int, Action | None]:
    """Return the command that is named, its number of arguments, the option that needs a value."""
    parser, given = command_line(), 0
    option: Action | None = None
    for word in words:
        if option is not None:
            option = None
        elif word.startswith("-"):
            option = _option_with_value(parser, word)
        elif word in parser.commands:
            parser, given = parser.commands[word], 0
        else:
            given += 1
    return parser, given, option


def _option_with_value(parser: CommandParser, word: str) -> Action | None:
    options = (action for action in parser.arguments if word in action.option_strings)
    return next((action for action in options if action.nargs != 0), None)


def _options(parser: CommandParser, current: str) -> Iterator[str]:
    for action in parser.arguments:
        for name in action.option_strings:
            if name.startswith(current) and action.help != SUPPRESS:
                yield f"{name}\t{action.help}"


def _values(action: Action, current: str) -> Iterator[str]:
    if action.type is Path:
        yield FILES
    for value in action.choices or ():
        if str(value).startswith(current):
            yield str(value)
