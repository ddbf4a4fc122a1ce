"""A program that behaves as `phala` or `vmm-cli.py` does, to be started as a child process.

`install` writes it into a folder for the PATH. Next to it, `state.json` has what tests set (see
State) and what the program was asked for. A machine measures what was deployed, as a soft TDX
machine does. Quirks of the real ones: a line before the JSON, exit code 0 for a person who has not
logged in and for an unknown machine, refusals in JSON or as text, long names for the same hash.
"""

import hashlib
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
MACHINE: Final = "2f0c6a0e-machine"
PHALA_APP_ID: Final = bytes.fromhex("ab" * 20)
KEYS_OF_ADMIN: Final = "DSTACK_AUTHORIZED_KEYS"
SCRIPT: Final = "#!/bin/bash\necho from the cloud\n"

Json = dict[str, Any]


def install(folder: Path, name: str, **state: Any) -> Path:
    """Write the program and its state; return its place.

    Args:
        state: `logged_in`, `options` (that `deploy --help` shows), `refusal` (text or JSON of
            `deploy`), `shown` (values in place of the right ones), `measured` (the same in the
            attestation), `script` (that the cloud adds all the same), `boot_error`, `hang` (a FIFO
            that is told where the secrets are, before the program hangs).
    """
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.fakes.platform_program import main\nmain()\n"
    )
    program.chmod(0o755)
    usual = {"logged_in": True, "options": "--no-pre-launch-script", "looks": 0, "calls": []}
    (folder / "state.json").write_text(json.dumps(usual | state))
    return program


def state_of(program: Path) -> Json:
    """Return the state of an installed program."""
    state: Json = json.loads(program.with_name("state.json").read_text())
    return state


def app_compose_of_phala(compose: str, names: list[str], script: str = "") -> str:
    """Return the app-compose.json that Phala Cloud makes: sorted keys, no spaces, no name."""
    fields = {
        "allowed_envs": names,
        "docker_compose_file": compose,
        "features": ["kms", "tproxy-net"],
        "gateway_enabled": True,
        "kms_enabled": True,
        "local_key_provider_enabled": False,
        "manifest_version": 2,
        "name": "",
        "no_instance_id": False,
        "public_logs": False,
        "public_sysinfo": False,
        "public_tcbinfo": True,
        "runner": "docker-compose",
        "secure_time": True,
        "storage_fs": "zfs",
        "tproxy_enabled": True,
    } | ({"pre_launch_script": script} if script else {})
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def main() -> None:
    """Do what the command line asks for."""
    program, arguments = Path(sys.argv[0]), sys.argv[1:]
    state = state_of(program)
    call: Json = {"arguments": arguments, "folder": os.fspath(Path.cwd())}
    secrets = Path("secrets.env")
    if secrets.exists():
        call |= {"mode": stat.S_IMODE(secrets.stat().st_mode), "secrets": secrets.read_text()}
    state["calls"].append(call)
    if "hang" in state and secrets.exists():
        Path(state["hang"]).write_text(str(secrets.absolute()))  # a FIFO, with a reader
        signal.pause()
    command = _phala if program.name == "phala" else _vmm_cli
    code = command(arguments, state)
    program.with_name("state.json").write_text(json.dumps(state))
    sys.exit(code)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _names() -> list[str]:
    lines = Path("secrets.env").read_text().splitlines()
    return [line.partition("=")[0] for line in lines]


def _refuse(refusal: str | Json) -> int:
    if isinstance(refusal, str):
        sys.stderr.write(f"{refusal}\n")
    else:
        _say(json.dumps({"success": False} | refusal, indent=2))
    return 1


def _option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


# Phala Cloud


def _phala(arguments: list[str], state: Json) -> int:
    if arguments == ["deploy", "--help"]:
        _say(f"Usage: phala deploy [options]\n  --no-dev-os\n  {state['options']}")
    elif arguments[0] == "status":
        if state["logged_in"]:
            _say(json.dumps({"success": True, "username": "ada"}))
        else:
            _say('Not authenticated. Please set an API key with "phala login"')
    elif arguments[0] == "deploy":
        return _phala_deploy(arguments, state)
    elif arguments[:2] == ["cvms", "get"]:
        state["looks"] += 1
        shown = {"success": True, "in_progress": state["looks"] < 2}
        _say(json.dumps(shown | state["machine"] | state.get("shown", {})))
    elif arguments[:2] == ["cvms", "attestation"]:
        if state["looks"] < 3:
            return _refuse({"error": "the machine does not answer"})
        measured = state["attestation"] | state.get("measured", {})
        _say(json.dumps({"success": True, "is_online": True, "tcb_info": measured}))
    return 0


def _phala_deploy(arguments: list[str], state: Json) -> int:
    if "refusal" in state:
        return _refuse(state["refusal"])
    names = _names() + ([] if "--no-dev-os" in arguments else [KEYS_OF_ADMIN])
    script = "" if "--no-pre-launch-script" in arguments else SCRIPT
    script = state.get("script", script)
    compose = Path(_option(arguments, "--compose")).read_text()
    app_compose = app_compose_of_phala(compose, names, script)
    if state.get("app_compose") != app_compose:
        state |= {"app_compose": app_compose} | _started(app_compose, script)
    state["looks"] = 0
    _say("Provisioning CVM signal-tee-bot...")
    made = {"success": True, "vm_uuid": MACHINE, "app_id": PHALA_APP_ID.hex()}
    _say(json.dumps(made, indent=2))
    return 0


def _started(app_compose: str, script: str) -> Json:
    """Return what the cloud shows of a machine, and what the machine has measured."""
    # Importing these takes long, and most calls do without.
    from tests.fakes.dstack_agent import SoftAgent
    from tests.fakes.soft_tdx import SoftTdx

    agent = SoftAgent(SoftTdx(now=0), app_compose, app_id=PHALA_APP_ID)
    machine = {
        "app_id": f"0x{agent.app_id.hex().upper()}",
        "os": {"is_dev": False, "os_image_hash": f"0x{agent.os_image_hash.hex()}"},
        "compose_hash": agent.compose_hash.hex(),
        "pre_launch_script_hash": hashlib.sha256(script.encode()).hexdigest() if script else None,
    }
    registers = zip(("rtmr0", "rtmr1", "rtmr2", "rtmr3"), agent.rtmrs(), strict=True)
    attestation: Json = {name: value.hex() for name, value in registers}
    attestation |= {"mrtd": agent.mr_td.hex(), "app_compose": app_compose}
    return {"machine": machine, "attestation": attestation | {"event_log": agent.event_log}}


# dstack


def _vmm_cli(arguments: list[str], state: Json) -> int:
    command = arguments[0]
    if command == "lsimage":
        _say(json.dumps([{"name": "dstack-0.5.9", "version": "0.5.9"}], indent=2))
    elif command == "deploy":
        return _vmm_deploy(arguments, state)
    elif arguments[1] != MACHINE:
        _say(f"VM with ID {arguments[1]} not found")
    else:
        return _vmm_machine(command, state["machine"])
    return 0


def _vmm_deploy(arguments: list[str], state: Json) -> int:
    if "refusal" in state:
        return _refuse(state["refusal"])
    text = Path(_option(arguments, "--compose")).read_text()
    app_id = hashlib.sha256(text.encode()).hexdigest()[:40]
    configuration = {"compose_file": text, "image": _option(arguments, "--image")}
    state["machine"] = {
        "status": "running",
        "app_id": app_id,
        "configuration": configuration | state.get("shown", {}),
        "boot_error": state.get("boot_error", "failed to start containers"),
    }
    _say(f"App ID: {app_id}\nCreated VM with ID: {MACHINE}")
    return 0


def _vmm_machine(command: str, machine: Json) -> int:
    if command == "info":
        _say(json.dumps(machine, indent=2))
        if machine["status"] == "stopping":
            machine["status"] = "stopped"
    elif command == "update-env":
        _update_env(machine["configuration"])
    elif command == "stop":
        machine["status"] = "stopping"
    elif command == "start":
        if machine["status"] != "stopped":
            return _refuse("Exception: API call failed: VM is running")
        machine |= {"status": "running", "boot_error": "", "boot_progress": "done"}
    return 0


def _update_env(configuration: Json) -> None:
    fields = json.loads(configuration["compose_file"])
    if fields["allowed_envs"] != _names():
        fields["allowed_envs"] = _names()
        configuration["compose_file"] = json.dumps(fields, indent=4)
