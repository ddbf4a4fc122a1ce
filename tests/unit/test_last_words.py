"""Which line of a failing server's error output an operator is shown."""

import pytest

from bot.cli.check import MAX_LAST_LINE_CHARACTERS, last_line

PYTHON = """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
ModuleNotFoundError: No module named 'mcp_server_nope'
"""
NODE = """\
/srv/server.js:1
throw new Error("set API_KEY")
^

Error: set API_KEY
    at Object.<anonymous> (/srv/server.js:1:7)
    at node:internal/main/run_main_module:28:49

Node.js v20.20.2
"""
NODE_FIELDS = """\
Error: Cannot find module '/srv/server.js'
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: [
    '/srv/main.js'
  ]
}

Node.js v20.20.2
"""
UV = """\
error: Failed to fetch: https://127.0.0.1/simple/mcp-server-time/
  cause: invalid peer certificate: UnknownIssuer

hint: Consider enabling use of system TLS certificates
"""
NPM = """\
npm error code E404
npm error 404  The requested resource 'nope@*' could not be found.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/debug-0.log
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        (PYTHON, "ModuleNotFoundError: No module named 'mcp_server_nope'"),
        (NODE, "Error: set API_KEY"),
        (NODE_FIELDS, "Error: Cannot find module '/srv/server.js'"),
        (UV, "cause: invalid peer certificate: UnknownIssuer"),
        (NPM, "npm error 404  The requested resource 'nope@*' could not be found."),
        ("\x1b[31mred\x1b[0m\r\n", "red"),
        ("a\x1b]0;title\x07b\x9b2J\n", "a⟨U+001B⟩]0;title⟨U+0007⟩b⟨U+009B⟩2J"),
        ("right\u202eleft\n", "right⟨U+202E⟩left"),
    ],
)
def test_the_last_line_that_says_something_is_shown_with_nothing_hidden(
    text: str, line: str
) -> None:
    assert last_line(text.encode()) == line


def test_a_long_last_line_is_cut() -> None:
    assert len(last_line(b"x" * 8_000)) == MAX_LAST_LINE_CHARACTERS
