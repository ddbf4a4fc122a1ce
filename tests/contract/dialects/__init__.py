"""Each dialect with its strict server: what `tests.contract.test_dialects` holds all of them to."""
