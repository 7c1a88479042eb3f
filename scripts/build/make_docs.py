"""make_docs.py man|bash|zsh|fish COMMAND VERSION [OPTIONS]: man page or completion of the command, from its own --help and
its reference pages. OPTIONS: a file with what `cachalot-page options` prints, else that is called."""

import re
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from cachalot_command.command import reference  # noqa: E402

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OTHERS = re.compile(r"`[^`]*`|^example: .*", re.M)  # what else is spoken of
COMMAND = re.compile(r"^  ([a-z][a-z-]*(?:, [a-z-]+)*)(?: (?:\[[^\]]*\]|[A-Z][^ ]*))* +(\S.*)$", re.M)
CHOICE = re.compile(r"(--[a-z-]+) ((?:[\w]+\|)+[\w]+)")

MAN_HEAD = """\
.\\" Made by scripts/build/make_docs.py from the command's own help.
.TH CACHALOT 1 "" "cachalot {version}" "User Commands"
.SH NAME
cachalot \\- a caching allocator in front of cudaMalloc, for CUDA programs as they are
.SH SYNOPSIS
.B cachalot
.I COMMAND
[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...
.SH DESCRIPTION
.B cachalot run
preloads a library that serves cudaMalloc and cudaFree of an unmodified program from a cache. At its end the
program writes what it allocated, reserved and wasted as a JSON report; the other commands show reports, hold them
against limits, look at running programs, and replay recorded runs.
.PP
{usage}
.SH COMMANDS
"""

MAN_TAIL = """\
.SH OPTIONS OF THE CACHE
{conf}.SH FAULTS OF A PROGRAM
{faults}.SH ENVIRONMENT
{environment}.SH FIELDS OF A REPORT
{report}.SH EXIT STATUS
{exit}.SH FILES
.TP
.I cachalot.PROGRAM.PID.json
a report, in the directory in which the program was started
.TP
.I /dev/shm/cachalot-UID
the live pages
.SH EXAMPLES
.nf
cachalot run --summary python3 train.py
cachalot show cachalot.train.py.*.json
cachalot check cachalot.*.json --max-leaked 0 --max-oom 0
.fi
.SH SEE ALSO
.BR ld.so (8),
.BR nvidia-smi (1)
"""

BASH = """\
# bash completion of cachalot; made by scripts/build/make_docs.py from the command's own help.
_cachalot()
{{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} words= at
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        words="{commands}"
    elif [ "$command" = run ]; then
        # Behind the options: a program, and what it takes.
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${{COMP_WORDS[at]}} in
            {valued}) ((at++)); [ "${{COMP_WORDS[at]}}" != = ] || ((at++)) ;;
            -*) ;;
            *) break ;;
            esac
        done
        # Of an option's value bash makes file names.
        [ "$at" -le "$COMP_CWORD" ] || return
        if [ "$at" -lt "$COMP_CWORD" ]; then
            ! declare -F _command_offset >/dev/null || _command_offset "$at"
            return
        fi
    fi
    case $command:$before in
    help:help) words="{topics}" ;;
{choices}
    esac
    case $command:$current in
{options}
    dump:* | empty-cache:*)
        [ "$COMP_CWORD" = 1 ] ||
            words=$(cachalot ls 2>/dev/null | while read -r pid state _; do [ "$state" != running ] || echo "$pid"; done) ;;
    run:*) [ "$COMP_CWORD" = 1 ] || {{ mapfile -t COMPREPLY < <(compgen -c -- "$current"); return; }} ;;
    esac
    [ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _cachalot cachalot
"""


PIDS = "cachalot ls 2>/dev/null"  # lines of a pid and a state

ZSH = """\
#compdef cachalot
# zsh completion of cachalot; made by scripts/build/make_docs.py from the command's own help.
_cachalot() {{
    local -a commands=(
{commands}
    )
    local -a options pids
    local at
    if (( CURRENT == 2 )); then
        _describe command commands
        compadd -- help --help --version
        return
    fi
    if [[ $words[2] = run ]]; then
        # Behind the options: a program, and what it takes.
        for ((at = 3; at < CURRENT; at++)); do
            case $words[at] in
            {valued}) ((at++)) ;;
            -*) ;;
            *) break ;;
            esac
        done
        if (( at < CURRENT )); then
            shift $((at - 1)) words
            (( CURRENT -= at - 1 ))
            _normal
            return
        fi
    fi
    case $words[2]:$words[CURRENT-1] in
    help:help) compadd -- {topics}; return ;;
{choices}
    esac
    case $words[2] in
{options}
    esac
    if [[ $PREFIX = -* ]]; then
        compadd -- $options
        return
    fi
    case $words[2]:$words[CURRENT-1] in
    run:({valued})) _files ;;
    run:*) _command_names -e || _files ;;
    dump:* | empty-cache:*)
        pids=(${{${{(M)${{(f)"$({pids})"}}:#* running*}}%%[^0-9 ]*}})
        compadd -- ${{pids// /}} ;;
    *) _files ;;
    esac
}}
_cachalot "$@"
"""

FISH = """\
# fish completion of cachalot; made by scripts/build/make_docs.py from the command's own help.
complete -c cachalot -n __fish_use_subcommand -f -l help
complete -c cachalot -n __fish_use_subcommand -f -l version
complete -c cachalot -n __fish_use_subcommand -f -a help -d 'what a command does'
{commands}
complete -c cachalot -n '__fish_seen_subcommand_from help' -f -a '{topics}'
complete -c cachalot -n '__fish_seen_subcommand_from run' -xa '(__fish_complete_subcommand --fcs-skip=2)'
complete -c cachalot -n '__fish_seen_subcommand_from dump empty-cache' -f -a '({pids} | string match -rg "^ *([0-9]+) +running")'
{options}
"""


def help_of(command, *words):
    return subprocess.run([sys.executable, command, *words, "--help"], stdout=subprocess.PIPE, text=True, check=True,
                          encoding="utf-8").stdout


def roff(text):
    """Text as troff prints it: no requests, no escapes, hyphens that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "\\[u2026]")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.rstrip("\n").split("\n"))


def verbatim(text):
    """Lines as they are; a help has up to 80 columns, so nothing is before them."""
    return f".in 0\n.nf\n{roff(text)}\n.fi\n.in\n"


def man(helps, usage, version, options):
    parts = [MAN_HEAD.format(version=version, usage=verbatim(usage.partition("\n\n")[2]))]
    for name, text in helps.items():
        parts.append(f".SS {roff(name)}\n{verbatim(text)}")
    pages = {"conf": reference.conf(options), "environment": reference.environment(), "report": reference.report(),
             "exit": reference.exit_codes(), "faults": reference.faults()}
    return "".join(parts) + MAN_TAIL.format(**{name: verbatim(text) for name, text in pages.items()})


def commands_of(usage):
    """{name: purpose}. A line may have several names."""
    return {name: purpose for names, purpose in COMMAND.findall(usage) for name in names.split(", ")}


class Table:
    """The source of all completions: each command with its purpose, its options and their values."""

    def __init__(self, helps, usage):
        self.commands = commands_of(usage)
        self.options = {name: sorted(set(OPTION.findall(OTHERS.sub("", text))) | {"--help"}) for name, text in helps.items()}
        self.choices = [(name, option, values.replace("|", " ")) for name, text in helps.items()
                        for option, values in CHOICE.findall(text)]
        self.valued = {name: sorted(set(re.findall(r"(--[a-z-]+)[= ]\[?[A-Z]", OTHERS.sub("", text)))) for name, text in helps.items()}
        self.of_run = sorted(set(re.findall(r"^  (--[a-z-]+) [A-Z]", helps["run"], re.M)))
        self.topics = " ".join([*reference.PAGES, *helps])


def bash(table):
    return BASH.format(commands=" ".join([*table.options, "help", "--help", "--version"]), topics=table.topics,
                       choices="\n".join(f"    {name}:{option}) words=\"{values}\" ;;" for name, option, values in table.choices),
                       valued=" | ".join(table.of_run),
                       options="\n".join(f"    {name}:-*) words=\"{' '.join(words)}\" ;;" for name, words in table.options.items()))


def zsh(table):
    return ZSH.format(commands="\n".join(f"        '{name}:{table.commands[name]}'" for name in table.options), topics=table.topics,
                      choices="\n".join(f"    {name}:{option}) compadd -- {values}; return ;;" for name, option, values in table.choices),
                      valued=" | ".join(table.of_run), pids=PIDS,
                      options="\n".join(f"    {name}) options=({' '.join(words)}) ;;" for name, words in table.options.items()))


def fish(table):
    values = {(name, option): values for name, option, values in table.choices}

    def line(name, option):
        more = f" -xa '{values[name, option]}'" if (name, option) in values else " -r" if option in table.valued[name] else ""
        return f"complete -c cachalot -n '__fish_seen_subcommand_from {name}' -l {option[2:]}{more}"

    return FISH.format(commands="\n".join(f"complete -c cachalot -n __fish_use_subcommand -f -a {name} -d '{table.commands[name]}'"
                                          for name in table.options), topics=table.topics, pids=PIDS,
                       options="\n".join(line(name, option) for name, words in table.options.items() for option in words))


COMPLETIONS = {"bash": bash, "zsh": zsh, "fish": fish}


def main(what, command, version, *options):
    usage = help_of(command)
    helps = {name: help_of(command, name) for name in commands_of(usage)}
    sys.stdout.reconfigure(encoding="utf-8")
    listed = pathlib.Path(options[0]).read_text(encoding="utf-8") if options else None
    print(man(helps, usage, version, listed) if what == "man" else COMPLETIONS[what](Table(helps, usage)), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
