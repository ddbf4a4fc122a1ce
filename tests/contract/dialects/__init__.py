"""Each dialect with its strict server, for `tests.contract.test_dialects`."""
