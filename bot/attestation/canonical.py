"""Canonical JSON, so that two programs hash the same bytes."""

import json


def canonical_json(value: object) -> str:
    """Return JSON as RFC 8785 (JCS) writes it, for what is used here.

    That is objects with ASCII keys, arrays, strings, booleans, null and integers: for these JCS is
    sorted keys, no white space and raw UTF-8. Floats, whose notation differs, are not used.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
