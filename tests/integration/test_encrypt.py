"""`signal-tee-bot encrypt` and `env`, and findings of `check` about a store and its key."""

import stat
import subprocess
from pathlib import Path

import pytest

from conversation_store.backup import is_plain
from conversation_store.store import open_store
from tests.integration.test_check import QUICK, run_check, run_program

SECRET = "my-own-key-of-many-letters"


async def make(folder: Path, key: str | None = None) -> None:
    async with open_store(folder / "data/conversations.db", key=key) as store:
        await store.set_metadata("name", "value")


def encrypt(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program("encrypt", *arguments, folder=folder, environment=variables)


def store_line(folder: Path, **variables: str) -> str:
    out = run_check(folder=folder, environment={**QUICK, **variables}).stdout
    [line] = (line for line in out.splitlines() if line.split()[1] == "store")
    return line


@pytest.mark.long
async def test_a_key_is_made_once_before_the_first_conversation_for_the_owner_alone(
    tmp_path: Path,
) -> None:
    made = encrypt(tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    file = tmp_path / ".env"
    name, _, key = file.read_text().strip().partition("=")
    assert (name, len(key), stat.S_IMODE(file.stat().st_mode)) == ("STORE__KEY", 64, 0o600)
    assert key not in made.stdout
    assert "no conversations yet" in encrypt(tmp_path).stdout
    assert file.read_text() == f"STORE__KEY={key}\n"
    await make(tmp_path, key)
    assert "is encrypted with STORE__KEY already." in encrypt(tmp_path).stdout


@pytest.mark.full
async def test_following_the_advice_of_check_encrypts_the_store(tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_text("# mine\nSTORE__KEY=\nLLM__MODEL=some\n")
    await make(tmp_path)
    assert "without encryption. Stop the bot and run signal-tee-bot encrypt" in store_line(tmp_path)
    assert encrypt(tmp_path).returncode == 0
    assert not is_plain(tmp_path / "data/conversations.db")
    assert store_line(tmp_path).endswith("Works, encrypted at rest.")
    assert env.read_text().startswith("# mine\nSTORE__KEY=")
    assert env.read_text().endswith("\nLLM__MODEL=some\n")


async def test_while_a_bot_runs_nothing_is_changed_and_no_key_is_made(tmp_path: Path) -> None:
    path = tmp_path / "data/conversations.db"
    async with open_store(path, key=None):
        refused = encrypt(tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith("stop the bot first\n")
    assert is_plain(path)
    assert not (tmp_path / ".env").exists()


@pytest.mark.full
async def test_changing_the_key_needs_the_old_one(tmp_path: Path) -> None:
    await make(tmp_path, "old")
    (tmp_path / "old-key.txt").write_text("old\n")
    assert "Set the key that the store was made with" in store_line(tmp_path, STORE__KEY=SECRET)
    assert "no key is set" in store_line(tmp_path)
    wrong = run_program(
        "encrypt", folder=tmp_path, environment={"STORE__KEY": SECRET}, answers="nonsense\n"
    )
    assert (wrong.returncode, "nothing was changed" in wrong.stderr) == (1, True)
    right = encrypt(tmp_path, "--old-key-file", "old-key.txt", STORE__KEY=SECRET)
    assert (right.returncode, right.stderr) == (0, "")
    assert store_line(tmp_path, STORE__KEY=SECRET).endswith("Works, encrypted at rest.")


async def test_without_the_key_of_an_encrypted_store_none_is_made(tmp_path: Path) -> None:
    await make(tmp_path, "old")
    refused = encrypt(tmp_path)
    assert refused.returncode == 1
    assert "STORE__KEY: the store is encrypted, and no key is set" in refused.stderr
    assert not (tmp_path / ".env").exists()


def test_env_prints_the_list_of_settings(tmp_path: Path) -> None:
    printed = run_program("env", folder=tmp_path, environment={})
    assert printed.returncode == 0
    assert printed.stdout == (Path(__file__).parents[2] / ".env.example").read_text()
