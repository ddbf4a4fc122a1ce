"""Opens the port of a proxy in a jail, hands it out to the bot, and goes on as the program.

The port belongs to the jail's own network, so no other jail reaches it, and it ends with the jail.
The bot accepts on it from outside: no socket file lies in the jail, and nothing but the program
runs there.

In a jail the bot's files cannot be read, so Python is given this file's text. To take only 10 ms it
imports nothing but what is built into Python.

Source: unix(7), SCM_RIGHTS.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys

HOST = "127.0.0.1"
_WAITING = 64
"""Connections that the kernel keeps until the bot takes them."""


def command_line(port: int, door: int) -> list[str]:
    """Return what stands before a program's own command.

    Args:
        port: to open.
        door: descriptor of a Unix socket that it inherits.
    """
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not built in
        text = file.read()
    return [sys.executable, "-I", "-S", "-c", text, str(port), str(door)]


def _main(port: str, door: str, *command: str) -> None:
    listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listening.bind((HOST, int(port)))
    listening.listen(_WAITING)
    outside = _socket.socket(fileno=int(door))
    descriptor = listening.fileno().to_bytes(4, sys.byteorder)
    outside.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor)])
    outside.close()
    listening.close()
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # by Python, but not by programs
        _signal.signal(ignored, _signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 - there is nothing for a shell to read


if __name__ == "__main__":
    _main(*sys.argv[1:])
