"""The key of an encrypted database, derived from the passphrase once for all connections.

SQLite3 Multiple Ciphers would derive it for every connection. It takes PBKDF2-HMAC-SHA256 with the
first 16 bytes of the file as salt (its documentation, cipher sqleet: ChaCha20), and a key that is
derived already as `raw:` with key and salt in hexadecimal digits.
"""

import hashlib
from functools import lru_cache
from typing import Any, Final

SALT_BYTES: Final = 16
ROUNDS: Final = 64_007
KEY_BYTES: Final = 32
RAW: Final = "raw:"


def key_for(connection: Any, passphrase: str) -> str:
    """Return what opens the file of a connection that has not read anything yet."""
    # By SQLite's own descriptor: to close another one would end its locks (POSIX).
    is_there, salt = connection.read("main", 0, 0, SALT_BYTES)
    if not is_there or passphrase.startswith(RAW):  # a new file has no salt yet
        return passphrase
    return _derived(passphrase, salt)


@lru_cache(maxsize=4)
def _derived(passphrase: str, salt: bytes) -> str:
    key = hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ROUNDS, KEY_BYTES)
    return f"{RAW}{key.hex()}{salt.hex()}"
