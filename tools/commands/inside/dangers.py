"""What programs do, as far as it is known before they run.

A command is harmless only if every program in it is on the list of harmless ones, and gets nothing
that would make it write over a file or run another program. Of all others the table says why they
are not; of those that it does not know, that they are not known.
"""

from collections.abc import Mapping
from typing import Final

HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            *("[", "base64", "basename", "cal", "cat", "cd", "cksum", "cmp", "column", "comm"),
            *("cut", "date", "df", "diff", "dirname", "du", "echo", "egrep", "expand", "expr"),
            *("factor", "false", "fgrep", "fmt", "fold", "grep", "head", "hexdump", "join"),
            *("ls", "md5sum", "mkdir", "nl", "numfmt", "od", "paste", "pwd", "readlink"),
            *("realpath", "rev", "seq", "sha1sum", "sha256sum", "sha512sum", "sleep", "stat"),
            *("strings", "sum", "tac", "tail", "test", "touch", "tr", "true", "type", "wc"),
            "which",
        ),
        frozenset(),
    ),
    "find": frozenset(
        {
            *("-delete", "-exec", "-execdir", "-ok", "-okdir"),
            *("-fls", "-fprint", "-fprint0", "-fprintf"),
        }
    ),
    "jq": frozenset({"-i", "--in-place"}),
    "printf": frozenset({"-v"}),
    "rg": frozenset({"--pre", "--hostname-bin", "-z", "--search-zip"}),
    "sort": frozenset({"-o", "--output", "--compress-program", "-T", "--temporary-directory"}),
}
"""Programs that change nothing that is there, with the options that would make them."""

_DELETES: Final = "it deletes files"
_OVERWRITES: Final = "it may write over files"
_RIGHTS: Final = "it changes what may be done with files or processes"
_NETWORK: Final = "it asks others on the network"

RISKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rm", "rmdir", "shred", "truncate", "unlink"), _DELETES),
    **dict.fromkeys(
        (
            *("bunzip2", "bzip2", "cp", "csplit", "dd", "gunzip", "gzip", "ln", "mv", "split"),
            *("tee", "uniq", "unxz", "unzip", "xxd", "xz"),
        ),
        _OVERWRITES,
    ),
    **dict.fromkeys(("chgrp", "chmod", "chown", "kill", "killall", "pkill", "renice"), _RIGHTS),
    **dict.fromkeys(("curl", "dig", "host", "nslookup", "ping", "wget"), _NETWORK),
}
"""Why others are not harmless. They do one thing, so a person may allow all their calls."""

MANY_THINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("convert", "install", "magick", "mogrify", "patch", "sed", "tar", "zip"), _OVERWRITES
    ),
    "git": "it may throw changes away",
    **dict.fromkeys(
        ("apt", "ftp", "nc", "ncat", "npm", "pip", "rsync", "scp", "sftp", "socat", "telnet"),
        _NETWORK,
    ),
    **dict.fromkeys(
        ("node", "perl", "php", "python", "python3", "ruby"), "it runs a program that is not shown"
    ),
}
"""Some of those that can run other programs besides, as all may of which nothing is known; nobody
can allow all their calls."""
UNKNOWN: Final = "what it does is not known"

RUNNERS: Final = frozenset(
    {
        *(".", "alias", "at", "awk", "bash", "batch", "builtin", "busybox", "chroot", "chrt"),
        *(
            "command",
            "coproc",
            "dash",
            "doas",
            "ed",
            "emacs",
            "env",
            "eval",
            "ex",
            "exec",
            "expect",
        ),
        *("fish", "flock", "gawk", "ionice", "ksh", "make", "mawk", "nice", "nohup", "nsenter"),
        *("parallel", "prlimit", "script", "setpriv", "setsid", "sh", "source", "ssh", "stdbuf"),
        *("strace", "su", "sudo", "taskset", "time", "timeout", "trap", "unshare", "vi", "vim"),
        *("watch", "xargs", "zsh"),
    }
)
RUNS_OTHERS: Final = "it runs other programs, which no list can name"
"""A yes for all of its calls would be one for everything."""

HARMLESS_VARIABLES: Final = frozenset({"LANG", "LC_ALL", "LC_NUMERIC", "TZ"})
"""Beside those in small letters: others decide what programs do, such as PATH and LD_PRELOAD."""

KNOWN_NODES: Final = frozenset(
    {
        *("case_item", "case_statement", "command", "command_name", "command_substitution"),
        *("comment", "compound_statement", "concatenation", "do_group", "elif_clause"),
        *("else_clause", "expansion", "file_descriptor", "file_redirect", "for_statement"),
        *("function_definition", "heredoc_body", "heredoc_content", "heredoc_end"),
        *("heredoc_redirect", "heredoc_start", "if_statement", "list", "negated_command"),
        *("number", "pipeline", "process_substitution", "program", "raw_string"),
        *("redirected_statement", "simple_expansion", "special_variable_name", "string"),
        *("string_content", "subshell", "test_command", "test_operator", "unary_expression"),
        *("binary_expression", "variable_assignment", "variable_assignments", "variable_name"),
        *("while_statement", "word"),
    }
)
"""What the parser reads as every shell does; anything else may mean another thing to `sh`."""
