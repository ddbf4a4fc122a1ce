"""A copy of the Signal account: signal-cli's folder `data`, encrypted with the store's key.

The file has 8 bytes of MAGIC, 16 of salt, 12 of nonce, and a tar under ChaCha20-Poly1305 (RFC 8439)
with a key from scrypt (RFC 7914). signal-cli's databases are copied as SQLite sees them, so it may
keep running; caches and files that people sent are left out.
"""

import io
import secrets
import sqlite3
import tarfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from bot.errors import BotError

NAME: Final = "signal-account.copy"
MAGIC: Final = b"STBACC01"
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
MAX_BYTES: Final = 2**30
DATA: Final = "data"


def save(signal_folder: Path, key: str, target: Path) -> Path:
    """Write a copy into a folder, and return its file; raises BotError.

    Args:
        signal_folder: of signal-cli, as `SIGNAL__DATA_DIR`.
    """
    source = signal_folder / DATA
    if not (source / "accounts.json").is_file():
        raise BotError(f"{signal_folder} has no account of signal-cli. See SIGNAL__DATA_DIR.")
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    try:
        packed = _packed(source)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = target / NAME
        sealed = _cipher(key, salt).encrypt(nonce, packed, MAGIC)
        draft = file.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_bytes(MAGIC + salt + nonce + sealed)
        draft.replace(file)
    except (OSError, sqlite3.Error) as error:
        raise BotError(f"The account cannot be copied to {target}: {error}.") from None
    return file


def load(signal_folder: Path, key: str, source: Path) -> Path | None:
    """Replace signal-cli's folder `data` by a copy; return the old folder's new path, or None.

    Raises:
        BotError: the file is not a copy, has another key, or cannot be read; or the disk refuses.
    """
    try:
        content = (source / NAME).read_bytes()
        head, rest = content[: len(MAGIC)], content[len(MAGIC) :]
        salt, nonce = rest[:SALT_BYTES], rest[SALT_BYTES:][:NONCE_BYTES]
        if head != MAGIC:
            raise BotError(f"{source / NAME} is no copy of an account.")
        packed = _cipher(key, salt).decrypt(nonce, rest[SALT_BYTES + NONCE_BYTES :], MAGIC)
        signal_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".restoring-", dir=signal_folder) as folder:
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                # Python 3.11 before 3.11.4 has no filters; only the key's owner can make this file.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(folder)  # noqa: S202
            aside = None
            if (signal_folder / DATA).exists():
                aside = signal_folder / f"{DATA}.before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
                (signal_folder / DATA).rename(aside)
            (Path(folder) / DATA).rename(signal_folder / DATA)
    except InvalidTag:
        raise BotError(f"{source / NAME} is damaged, or STORE__KEY is not its key.") from None
    except (OSError, tarfile.TarError) as error:
        raise BotError(f"The account cannot be restored from {source}: {error}.") from None
    return aside


def _cipher(key: str, salt: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(Scrypt(salt, length=32, n=2**15, r=8, p=1).derive(key.encode()))


def _packed(folder: Path) -> bytes:
    """Return a tar of signal-cli's folder, with its databases as of now, made in memory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.name.endswith(("-wal", "-shm")):
                continue
            content = _database(path) if path.suffix == ".db" else path.read_bytes()
            member = tarfile.TarInfo(str(Path(DATA) / path.relative_to(folder)))
            member.size, member.mode = len(content), 0o600
            if packed.tell() + member.size > MAX_BYTES:
                raise BotError("signal-cli's folder is too large for a copy.")
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _database(path: Path) -> bytes:
    """Return a database with the changes that are in its log."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.execute("BEGIN")
        return database.serialize()
