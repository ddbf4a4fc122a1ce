"""What the Docker Compose file of an enclave may hold: a closed list.

Docker Compose knows a hundred ways to bring in what nothing measures: folders of the machine, files
of the host, variables, other programs, rights over the machine. New versions add more. So this is
no list of what is dangerous but one of what is known to be safe, each key with the form of its
value; whatever is not on it is refused, by its name and line. What is on it:

- images by their digest, started by their own entry point, with options as arguments;
- named volumes without options, in folders for data, and the guest agent's socket for one service;
- settings that are written in the file, and secrets from outside as a whole `${NAME}`;
- limits, and whatever takes rights away.

Keys and values: https://docs.docker.com/reference/compose-file/.
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from bot.attestation import compose_rules as rules
from bot.attestation.compose_rules import ComposeFile, Place, Rule
from bot.attestation.errors import MalformedEvidence
from bot.attestation.plain_yaml import Mapping, Node, Scalar, Sequence, parse

AGENT_SOCKET: Final = "/var/run/dstack.sock"
"""The one thing of the machine itself that a service may have."""

FROM_OUTSIDE: Final = re.compile(
    "SIGNAL__PHONE_NUMBER"
    "|LLM__(MODELS__[A-Z0-9]+(_[A-Z0-9]+)*__)?(API_KEY|SECRET_ACCESS_KEY|SESSION_TOKEN|ACCESS_KEY_ID)"
    "|TOOLS__WEB_SEARCH__API_KEY|ACCESS__ALLOWED"
    "|MCP__SERVERS__[A-Z0-9]+(_[A-Z0-9]+)*__(TOKEN|ENV__([A-Z0-9]+_)*(KEY|PASSWORD|SECRET|TOKEN))"
    "|HEALTH__LISTEN|LOG__(LEVEL|FORMAT)|SIGNAL_(CAPTCHA|CODE)"
)
"""Variables whose values may come from whoever operates the machine: secrets, what registers the
account, and what changes nothing for people."""

_A_SECRET: Final = re.compile("([A-Z0-9]+_)*(KEY|PASSWORD|SECRET|TOKEN)")
"""What a container may call a variable from outside that is no setting of the bot's."""

_VARIABLE: Final = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_SETTING: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SHORTEST_VOLUME: Final = 2
"""Characters of a volume's name. Docker Compose takes the one letter of `a:/data` for a drive."""

_TURNS_DATA_INTO_CODE: Final = re.compile(
    "(LD|GCONV|GLIBC|MALLOC|NPM|JDK|GEM|BUNDLE|LUA|DOTNET|CORECLR|COMPLUS|MONO|BASH|XDG|DSTACK|TAPPD"
    "|DOCKER|COMPOSE|GIT|OPENSSL|SSL|CURL|REQUESTS|PIP|UV|CARGO|RUSTC|ERL|R|QT|GTK|NODE|_?JAVA|KRB5)_.*"
    "|(PYTHON|RUBY|PERL|PHP).*|ENV|SHELL|IFS|PS4|VISUAL|TMPDIR|ZDOTDIR|HOSTALIASES"
    "|LOCALDOMAIN|CREDENTIALS_DIRECTORY|SSLKEYLOGFILE|GODEBUG|LESS(OPEN|CLOSE)|BROWSER"
    "|.*(PATH|PROXY|PRELOAD|OPTS|OPTIONS|FLAGS|ARGS|INIT|STARTUP|PLUGINS?|MODULES?|PAGER|EDITOR"
    "|COMMAND|CONFIG|HOME|RC)(_.*)?"
)
"""Variables by which interpreters and loaders run what they find in a folder, or which lead a
program elsewhere. Folders of data hold what people send, so an image would be fixed in vain."""
_FOLDERS: Final = frozenset({"STORE__PATH", "TOOLS__WORKSPACE__PATH"})
"""Settings of the bot's that are called so and hold no code."""
_OF_THE_BOT: Final = re.compile(
    "(SIGNAL|LLM|BOT|STORE|TOOLS|ACCESS|ATTESTATION|HEALTH|LOG)__.+|SANDBOX|SIGNAL_(CAPTCHA|CODE)"
    "|MCP__SERVERS__[A-Z0-9]+(_[A-Z0-9]+)*__(URL|TOKEN|TIMEOUT_SECONDS|TOOLS|ENV__.+)"
)
"""Settings of the bot's, whose meaning is known. A server of tools is one by its URL alone."""
_NO_FILE: Final = re.compile(r"https?://[!-~]+|(?!--?[A-Za-z])[^/~\\]*")
"""What any other variable may say: names of those that run a file are without number, so none
names a file, nor holds options."""
_PINS: Final = "ATTESTATION__MODEL_PINS"

_HOST: Final = r"[a-zA-Z0-9]+([.-][a-zA-Z0-9]+)*(:[0-9]{1,5})?"
_PART: Final = "[a-z0-9]+((\\.|_{1,2}|-+)[a-z0-9]+)*"
_TAG: Final = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_IMAGE: Final = rf"({_HOST}/)?{_PART}(/{_PART})*(:{_TAG})?@sha256:[0-9a-f]{{64}}"

_SUBCOMMANDS: Final = frozenset({"register", "run", "serve", "sse", "start", "stdio"})
"""What a command may begin with beside an option: words that name a program in no image."""
_OPTION: Final = re.compile(
    "--(address|bind|host|json|listen|log-(format|level)|no-color|port|quiet|read-only|socket"
    "|stateless|stdio|timeout|transport|unattended|verbose|workers)"
    "(=([A-Za-z0-9][A-Za-z0-9.:,_-]{0,255}|/run(/[A-Za-z0-9_][A-Za-z0-9._-]*){1,8}))?"
)
"""An image that has no entry point runs the first word, and one whose entry point is a shell or an
init runs what follows; an option is no program to any of them. But interpreters take code by
options (`--eval`, `--import=https://…`, `-m`), as do the entry points of many images that start
them, so these are options that say where a program listens and how much it says."""
_HEALTH_TESTS: Final = (("NONE",), ("CMD", "signal-tee-bot", "ready"))
"""Every other image has its own, or none."""

_PIECE: Final = "/[A-Za-z0-9_][A-Za-z0-9._-]*"
_DATA_FOLDER: Final = re.compile(
    rf"(?!/run/secrets(/|$))(/data({_PIECE})*|/(mnt|run|var/(cache|lib|log))({_PIECE})+)"
)
"""Where volumes may be. A volume over programs or libraries would outlive the image they are of;
files in /run/secrets are settings of the bot."""
_TMPFS: Final = (
    rf"(/tmp|/var/tmp|/run|{_DATA_FOLDER.pattern})"
    "(:(mode=[0-7]{3,4}|size=[0-9]+[kmg]?|(uid|gid)=[0-9]{1,7}|ro|rw|exec|noexec|nosuid|nodev)"
    "(,(mode=[0-7]{3,4}|size=[0-9]+[kmg]?|(uid|gid)=[0-9]{1,7}|ro|rw|exec|noexec|nosuid|nodev))*)?"
)
_DURATION: Final = "([0-9]{1,6}(us|ms|s|m|h)){1,4}"
_SIZE: Final = "[0-9]{1,15}(b|k|kb|m|mb|g|gb)?"


def compose_problems(text: str, allowed_envs: Collection[str]) -> Iterator[str]:
    """Name everything in a Docker Compose file that is not on the list, with its line.

    Args:
        text: the file.
        allowed_envs: the variables that app-compose.json lets in.
    """
    try:
        tree = parse(text)
    except MalformedEvidence as error:
        yield str(error)
        return
    file = ComposeFile(
        allowed_envs,
        services=_keys(tree.entries.get("services")),
        volumes=_keys(tree.entries.get("volumes")),
        networks={"default", *_keys(tree.entries.get("networks"))},
    )
    place = Place(file)
    yield from _FILE(tree, place)
    if not file.services:
        yield place.refused("starts no service")


def environments(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Return each service with the settings that are written for it, of a file on the list.

    Raises:
        MalformedEvidence: the file cannot be read.
    """
    services = parse(text).entries.get("services")
    for name, service in services.entries.items() if isinstance(services, Mapping) else ():
        written = service.entries.get("environment") if isinstance(service, Mapping) else None
        yield name, dict(_settings(written))


def _settings(node: Node | None) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for name, value in node.entries.items():
            if isinstance(value, Scalar):
                yield name, value.text
    elif isinstance(node, Sequence):
        for item in node.items:
            if isinstance(item, Scalar):
                name, _, text = item.text.partition("=")
                yield name, text


def _keys(node: Node | None) -> Collection[str]:
    return node.entries.keys() if isinstance(node, Mapping) else ()


# Parts of a service


def _words(node: Node | None, place: Place) -> Iterator[str]:
    """A subcommand or none, and options: nothing that a shell reads or an init starts."""
    if not isinstance(node, Sequence):
        yield place.refused("a list of words is expected, which no shell reads")
        return
    for number, item in enumerate(node.items):
        here = place.below(str(number), item.line)
        word = item.text if isinstance(item, Scalar) and item.is_text else ""
        if not _OPTION.fullmatch(word) and (number or word not in _SUBCOMMANDS):
            yield here.refused("an option such as --port=8080 is expected: no program, no code")


def _health_test(node: Node | None, place: Place) -> Iterator[str]:
    items = node.items if isinstance(node, Sequence) else ()
    words = tuple(item.text if isinstance(item, Scalar) else "" for item in items)
    if words not in _HEALTH_TESTS:
        yield place.refused("[CMD, signal-tee-bot, ready] is expected, or the image's own test")


def _environment_list(node: Node | None, place: Place) -> Iterator[str]:
    if not isinstance(node, Sequence):
        yield place.refused("settings are expected")
        return
    names: set[str] = set()
    for item in node.items:
        text = item.text if isinstance(item, Scalar) and item.is_text else ""
        name, equals, value = text.partition("=")
        here = place.below(name if _SETTING.fullmatch(name) else "?", item.line)
        if not equals:
            yield here.refused("NAME=VALUE is expected; without one it is the machine's variable")
        else:
            yield from _setting(name, value, names, here)


def _environment_mapping(node: Mapping, place: Place) -> Iterator[str]:
    names: set[str] = set()
    for name, value in node.entries.items():
        here = place.below(name, node.lines[name])
        if not isinstance(value, Scalar) or not value.is_text:
            yield here.refused("a text is expected; without one it is the machine's variable")
        else:
            yield from _setting(name, value.text, names, here)


def _setting(name: str, value: str, names: set[str], place: Place) -> Iterator[str]:
    if not _SETTING.fullmatch(name):
        yield place.refused("a name of letters, digits and underscores is expected")
    known = name.upper()  # the bot's settings have no case
    if known in names:
        yield place.refused("stands there twice")
    names.add(known)
    if _TURNS_DATA_INTO_CODE.fullmatch(known.rpartition("__ENV__")[2]) and known not in _FOLDERS:
        yield place.refused("decides which code runs, or where it turns")
    if "$" in value:
        yield from _from_outside(name, value, place)
    elif known == _PINS and not value.startswith("{"):
        yield place.refused("nothing measures a file; the pins themselves are expected")
    elif known.startswith("MCP__") and not _OF_THE_BOT.fullmatch(known):
        yield place.refused(
            "a server of tools has a URL, TOKEN, TIMEOUT_SECONDS, TOOLS, nothing else"
        )
    elif not _OF_THE_BOT.fullmatch(known) and not _NO_FILE.fullmatch(value):
        yield place.refused("may name no file and hold no options: it may be code to its program")


def _from_outside(name: str, value: str, place: Place) -> Iterator[str]:
    variable = _VARIABLE.fullmatch(value)
    if variable is None:
        yield place.refused("a dollar sign may stand only in a whole ${NAME}")
    elif variable[1] not in place.file.allowed_envs:
        yield place.refused(f"{variable[1]} is not among allowed_envs")
    elif not (FROM_OUTSIDE.fullmatch(name) or _A_SECRET.fullmatch(name)):
        yield place.refused("decides more than whoever operates the machine may")


def _volume(node: Node | None, place: Place) -> Iterator[str]:
    """A named volume in a folder for data, or the guest agent's socket."""
    if isinstance(node, Mapping):
        yield from _long_volume(node, place)
        return
    text = node.text if isinstance(node, Scalar) and node.is_text else ""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if mode not in {"", "ro", "rw"} or text.endswith(":"):
        yield place.refused("NAME:FOLDER, with :ro or without, is expected")
    else:
        yield from _mount(source, target, place)


def _long_volume(node: Mapping, place: Place) -> Iterator[str]:
    is_bind = _text_of(node, "type") == "bind"
    more: dict[str, Rule] = (
        {"bind": rules.keyed({"create_host_path": rules.truth})} if is_bind else {}
    )
    source, target = _text_of(node, "source"), _text_of(node, "target")
    anything = rules.text(".*", "a text")
    keys = {
        "type": rules.text("bind|volume", "bind or volume"),
        "source": anything,
        "target": anything,
    }
    yield from rules.keyed(
        {**keys, "read_only": rules.truth, **more}, required=("type", "source", "target")
    )(node, place)
    if is_bind != (source == AGENT_SOCKET):
        yield place.refused(f"of the machine itself only {AGENT_SOCKET} may be there")
    else:
        yield from _mount(source, target, place)


def _text_of(node: Mapping, name: str) -> str:
    value = node.entries.get(name)
    return value.text if isinstance(value, Scalar) and value.is_text else ""


def _mount(source: str, target: str, place: Place) -> Iterator[str]:
    if source == AGENT_SOCKET:
        if target != AGENT_SOCKET:
            yield place.refused(f"the guest agent's socket stands at {AGENT_SOCKET}")
        place.file.agents.append(place.path)
        if len(place.file.agents) > 1:
            yield place.refused("only one service may have the guest agent's socket")
    elif source not in place.file.volumes:
        yield place.refused(
            f"a volume that is named at the top is expected, or {AGENT_SOCKET}:"
            " nothing measures what else is on the machine"
        )
    elif not _DATA_FOLDER.fullmatch(target):
        yield place.refused("a folder for data is expected, such as /data or one in /var/lib")


def _known(names: Callable[[ComposeFile], Collection[str]], what: str) -> Rule:
    def rule(node: Node | None, place: Place) -> Iterator[str]:
        text = node.text if isinstance(node, Scalar) and node.is_text else ""
        if text not in names(place.file):
            yield place.refused(f"{what} of this file is expected")

    return rule


def _depends_on_mapping(node: Mapping, place: Place) -> Iterator[str]:
    known = _known(lambda file: file.services, "a service")
    for name, value in node.entries.items():
        here = place.below(name, node.lines[name])
        yield from known(Scalar(name, here.line, is_text=True), here)
        yield from rules.keyed(
            {
                "condition": rules.text(
                    "service_(started|healthy|completed_successfully)", "a condition"
                ),
                "required": rules.truth,
                "restart": rules.truth,
            }
        )(value, here)


# The list


_COUNT: Final = rules.value("[0-9]{1,9}", "a number")
_LASTS: Final = rules.value(_DURATION, "a duration such as 15s")
_HOLDS: Final = rules.value(_SIZE, "a size such as 512m")
_TEMPORARY: Final = rules.text(_TMPFS, "a folder such as /tmp, with known options,")

_HEALTHCHECK: Final = rules.keyed(
    {
        "disable": rules.truth,
        "interval": _LASTS,
        "retries": _COUNT,
        "start_interval": _LASTS,
        "start_period": _LASTS,
        "test": _health_test,
        "timeout": _LASTS,
    }
)
_LOGGING: Final = rules.keyed(
    {
        "driver": rules.text("none|json-file|local", "none, json-file or local"),
        "options": rules.keyed(
            {"max-file": rules.value("[0-9]{1,4}", "a number"), "max-size": _HOLDS}
        ),
    },
    required=("driver",),
)
_SERVICE: Final = rules.keyed(
    {
        "cap_drop": rules.list_of(rules.text("[A-Z][A-Z_]{1,40}", "a capability")),
        "command": _words,
        "cpus": rules.value(r"[0-9]{1,4}(\.[0-9]{1,6})?", "a number"),
        "depends_on": rules.by_shape(
            of_list=rules.list_of(_known(lambda file: file.services, "a service")),
            of_mapping=_depends_on_mapping,
        ),
        "environment": rules.by_shape(of_list=_environment_list, of_mapping=_environment_mapping),
        "expose": rules.list_of(rules.value("[0-9]{1,5}", "a port")),
        "healthcheck": _HEALTHCHECK,
        "image": rules.text(_IMAGE, "an image by its digest, NAME@sha256:HEX,"),
        "init": rules.truth,
        "logging": _LOGGING,
        "mem_limit": _HOLDS,
        "mem_reservation": _HOLDS,
        "memswap_limit": _HOLDS,
        "network_mode": rules.text("none", "none"),
        "networks": rules.list_of(_known(lambda file: file.networks, "a network")),
        "pids_limit": _COUNT,
        "read_only": rules.truth,
        "restart": rules.text(
            "no|always|unless-stopped|on-failure(:[0-9]{1,3})?", "a restart policy"
        ),
        "security_opt": rules.list_of(
            rules.text("no-new-privileges(:true)?", "no-new-privileges:true")
        ),
        "shm_size": _HOLDS,
        "stop_grace_period": _LASTS,
        "stop_signal": rules.text("SIG[A-Z]{2,8}[12]?", "a signal"),
        "tmpfs": rules.list_of(_TEMPORARY),
        "user": rules.value("[0-9]{1,7}(:[0-9]{1,7})?|[a-z_][a-z0-9_-]{0,31}", "a user"),
        "volumes": rules.list_of(_volume),
    },
    required=("image",),
)
_FILE: Final = rules.keyed(
    {
        "name": rules.text("[a-z][a-z0-9_-]{0,62}", "a name of small letters"),
        "networks": rules.named(rules.or_nothing(rules.keyed({"internal": rules.truth}))),
        "services": rules.named(_SERVICE),
        "version": rules.text(r"[0-9]{1,2}(\.[0-9]{1,2})?", "a number in quotes"),
        "volumes": rules.named(rules.or_nothing(rules.keyed({})), shortest=_SHORTEST_VOLUME),
    },
    required=("services",),
)
