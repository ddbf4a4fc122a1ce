"""Settings as an operator meets them."""

import re
import socket
from pathlib import Path

import pytest

from bot.config.loading import REMOVED, load_settings, setting_names
from bot.errors import SettingsError

NUMBER = "+4915100000000"
ROOT = Path(__file__).parents[2]
INTERNAL = {"TOOLS__CALLS_PER_MINUTE", "TOOLS__CALLS_PER_MINUTE_TOTAL"}
"""Settings for tests and benchmarks, which no document names."""
MISSING = "SIGNAL__PHONE_NUMBER: is required; set it in .env, which signal-tee-bot setup makes"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start from no settings at all, in an empty folder."""
    for name in setting_names():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)


def problems_of(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[str, ...]:
    """Return the lines that an operator would read."""
    for name, value in ({"SIGNAL__PHONE_NUMBER": NUMBER} | environment).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return caught.value.problems


def test_only_the_number_is_required() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert caught.value.problems == (MISSING,)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SIGNAL__PHONE_NUMBER", "0151", "international form"),
        ("SIGNAL__URL", "ftp://example", "unix:/path/to/socket"),
        ("SIGNAL__URL", "tcp://host", "tcp://host:port"),
        ("SIGNAL__URL", "spawn:/usr/bin/signal-cli", "spawn:,"),
        ("SIGNAL__TRUST", "maybe", "'tofu', 'always' or 'verified'"),
        ("BOT__ACK_REACTION", "eyes", "one emoji"),
        ("BOT__PROFILE_NAME", "x" * 27, "must have at most 26 characters"),
        ("SIGNAL__URL", "tcp://host:secret", "tcp://host:port"),
        ("LLM__BASE_URL", "example.org", "http:// or https://"),
        ("LLM__BASE_URL", "http://[::1", "http:// or https://"),
        ("LLM__BASE_URL", "http://host:secret", "http:// or https://"),
        ("LLM__BASE_URL", "http://host/v1/chat/completions", "must end before /chat/completions"),
        ("LLM__BASE_URL", "http://host/v1/chat/completions/", "must end before /chat/completions"),
        ("LLM__TIMEOUT_SECONDS", "inf", "finite"),
        ("LLM__TIMEOUT_SECONDS", "soon", "valid number"),
        ("LLM__MAX_CONCURRENCY", "0", "greater than or equal to 1"),
        ("STORE__RETENTION_DAYS", "-1", "greater than or equal to 0"),
        ("ACCESS__POLICY", "friends", "'open', 'allowlist' or 'pairing'"),
        ("ACCESS__ALLOWED", "bob", "numbers"),
        ("HEALTH__LISTEN", "8081", "host:port"),
        ("HEALTH__LISTEN", "host:²", "host:port"),
        ("LOG__LEVEL", "loud", "'debug'"),
        ("TOOLS__CALCULATOR__ENABLED", "perhaps", "true or false"),
    ],
)
def test_wrong_value_is_one_line_with_the_setting_and_the_expected_values(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    (problem,) = problems_of(monkeypatch, **{name: value})
    assert problem.startswith(f"{name}: ")
    assert expected in problem
    assert "secret" not in problem
    assert "\n" not in problem


def test_every_wrong_setting_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = problems_of(monkeypatch, LLM__TIMEOUT_SECONDS="x", LOG__LEVEL="x", LLM__MODELS="x")
    assert sorted(problem.split(":")[0] for problem in problems) == [
        "LLM__MODELS",
        "LLM__TIMEOUT_SECONDS",
        "LOG__LEVEL",
    ]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("LLM__APIKEY", "LLM__API_KEY"),
        ("TOOLS__CALCULATOR__ENABLE", "TOOLS__CALCULATOR__ENABLED"),
        ("STORE__RETENTION", "STORE__RETENTION_DAYS"),
        ("TOOLS__CALCULATRO__ENABLED", "TOOLS__CALCULATOR__ENABLED"),
    ],
)
def test_unknown_name_below_a_section_is_refused_with_the_nearest_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    (problem,) = problems_of(monkeypatch, **{name: "sk-very-secret"})
    assert problem == f"{name}: no such setting; did you mean {nearest}?"


@pytest.mark.parametrize("name", ["LLM", "LOG", "BOT", "OTHER__THING", "SIGNALS__X"])
def test_names_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv(name, "anything")
    load_settings()


def test_empty_means_unset_and_switches_the_health_server_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(f"SIGNAL__PHONE_NUMBER={NUMBER}\nLLM__MODEL=from-file\n")
    for name in ("LLM__API_KEY", "LLM__MODEL", "ACCESS__ALLOWED", "STORE__KEY", "HEALTH__LISTEN"):
        monkeypatch.setenv(name, "")
    settings = load_settings()
    assert settings.llm.api_key is None
    assert settings.llm.model == "from-file"
    assert settings.access.allowed == frozenset()
    assert settings.store.key is None
    assert settings.health.listen == ""


def test_the_environment_wins_over_the_file_and_the_file_over_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = tmp_path / "credentials"
    secrets.mkdir()
    for name in ("LLM__API_KEY", "LLM__MODEL", "STORE__KEY"):
        (secrets / name).write_text("from-secrets\n")
    (tmp_path / ".env").write_text("LLM__API_KEY=from-file\nLLM__MODEL=from-file\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secrets))
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("LLM__MODEL", "from-environment")
    settings = load_settings()
    assert settings.llm.model == "from-environment"
    assert settings.llm.api_key is not None
    assert settings.llm.api_key.get_secret_value() == "from-file"
    assert settings.store.key is not None
    assert settings.store.key.get_secret_value() == "from-secrets"


def test_secret_files_hold_the_keys_of_tools_and_mcp_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = tmp_path / "credentials"
    secrets.mkdir()
    for name in (
        "TOOLS__WEB_SEARCH__API_KEY",
        "MCP__SERVERS__NOTES__TOKEN",
        "MCP__SERVERS__FILES__ENV__API_KEY",
    ):
        (secrets / name).write_text("sk-very-secret\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secrets))
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("MCP__SERVERS__NOTES__URL", "http://127.0.0.1:3000/mcp")
    monkeypatch.setenv("MCP__SERVERS__FILES__COMMAND", "server")
    settings = load_settings()
    files, notes = settings.mcp.servers["files"], settings.mcp.servers["notes"]
    assert settings.tools.web_search.api_key is not None
    assert settings.tools.web_search.api_key.get_secret_value() == "sk-very-secret"
    assert files.environment == {"API_KEY": "sk-very-secret"}
    assert notes.headers == {"Authorization": "Bearer sk-very-secret"}


def test_people_are_listed_by_number_or_aci_with_spaces_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("ACCESS__ALLOWED", " +4915200000001 , 7F3C1A52-6b1e-4a0e-9a55-3a1e1b6f0d11,")
    assert load_settings().access.allowed == {
        "+4915200000001",
        "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11",
    }


def test_mcp_servers_are_read_by_the_names_that_the_operator_gives_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("MCP__SERVERS__MY_FILES__COMMAND", "server --root '/a b'")
    monkeypatch.setenv("MCP__SERVERS__MY_FILES__ENV__API_KEY", "sk-very-secret")
    monkeypatch.setenv("MCP__SERVERS__NOTES__URL", "http://127.0.0.1:3000/mcp")
    monkeypatch.setenv("MCP__SERVERS__NOTES__TOKEN", "sk-very-secret")
    monkeypatch.setenv("MCP__SERVERS__NOTES__TOOLS", "read, list,")
    settings = load_settings()
    assert "sk-very-secret" not in repr(settings)
    files, notes = (settings.mcp.servers[name] for name in ("my_files", "notes"))
    assert files.command == ("server", "--root", "/a b")
    assert files.environment == {"API_KEY": "sk-very-secret"}
    assert notes.url == "http://127.0.0.1:3000/mcp"
    assert (files.tools, notes.tools) == (frozenset(), frozenset({"read", "list"}))
    assert notes.headers == {"Authorization": "Bearer sk-very-secret"}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (
            "MCP__SERVERS__A__TOKEN",
            "sk-x",
            "MCP__SERVERS__A: needs MCP__SERVERS__A__COMMAND or MCP__SERVERS__A__URL, and not both",
        ),
        (
            "MCP__SERVERS__A__COMAND",
            "sk-x",
            "MCP__SERVERS__A__COMAND: no such setting; did you mean MCP__SERVERS__A__COMMAND?",
        ),
        (
            "MCP__SERVERS__A__COMMAND",
            "run 'it",
            "MCP__SERVERS__A__COMMAND: must be a command line; a quotation mark is missing",
        ),
        (
            "MCP__SERVERS__A__URL",
            "ftp://x",
            "MCP__SERVERS__A__URL: must be an http:// or https:// address, or unix:/path/to/socket",
        ),
        (
            "MCP__SERVERS__A-B__COMMAND",
            "run",
            "MCP__SERVERS__A-B: needs a name of letters, digits and underscores, up to 32",
        ),
        (
            "MCP__SERVERS__CALCULATE__COMMAND",
            "run",
            "MCP__SERVERS__CALCULATE: has the name of a built-in tool; choose another",
        ),
        (
            "TOOLS__WEB_SEARCH__PROVIDER",
            "bing",
            "TOOLS__WEB_SEARCH__PROVIDER: must be 'brave' or 'duckduckgo'",
        ),
        (
            "TOOLS__WEB_SEARCH__MAX_RESULTS",
            "11",
            "TOOLS__WEB_SEARCH__MAX_RESULTS: must be less than or equal to 10",
        ),
        (
            "TOOLS__COMMANDS__APPROVAL",
            "dangerous",
            "TOOLS__COMMANDS__APPROVAL: must be 'ask' or 'never'",
        ),
    ],
)
def test_wrong_setting_of_a_tool_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    assert problem in problems_of(monkeypatch, **{name: value})


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("TOOLS__WEATHER", "TOOLS__WEATHER__ENABLED"),
        ("MCP__SERVERS__A", "MCP__SERVERS__A__COMMAND"),
        ("MCP__SERVERS__A__ENV", "MCP__SERVERS__A__ENV__NAME"),
    ],
)
def test_a_value_for_a_whole_section_is_refused_with_a_setting_below_it(
    monkeypatch: pytest.MonkeyPatch, name: str, below: str
) -> None:
    for value in ("sk-very-secret", '{"command": "sh"}', '{"enabled": false}', "[]", "null"):
        (problem,) = problems_of(monkeypatch, **{name: value})
        expected = "has no value of its own; set what is below it, such as"
        assert problem == f"{name}: {expected} {below}"


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("LLM__API_KEY", "sk-very-secret")
    monkeypatch.setenv("STORE__KEY", "sk-very-secret")
    assert "sk-very-secret" not in repr(load_settings())
    problems = problems_of(monkeypatch, STORE__KEYS="sk-very-secret", LLM__TIMEOUT_SECONDS="sk-x")
    assert "sk-" not in " ".join(problems)


def test_env_example_names_every_setting_and_nothing_else() -> None:
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"\b(?:[A-Z]+__[A-Z0-9_]+|SANDBOX)(?==|\b)", example))
    assert named == setting_names() - INTERNAL


def test_tools_can_be_disabled_by_name_together_with_their_siblings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("MCP__SERVERS__NOTES__URL", "http://127.0.0.1:3000/mcp")
    monkeypatch.setenv("TOOLS__DISABLED", "remember, notes_write,")
    assert load_settings().tools.withheld == {"remember", "recall", "forget", "notes_write"}
    (problem,) = problems_of(monkeypatch, TOOLS__DISABLED="remeber")
    assert problem == "TOOLS__DISABLED: names a tool that does not exist; did you mean remember?"


@pytest.mark.parametrize("name", REMOVED)
def test_removed_setting_is_an_error_with_its_replacement(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert name not in setting_names()
    (problem,) = problems_of(monkeypatch, **{name: "false"})
    assert problem == f"{name}: no longer exists; {REMOVED[name]}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("LLM_API_KEY", "LLM__API_KEY"), ("MCP_SERVERS_A_COMMAND", "MCP__SERVERS__A__COMMAND")],
)
def test_a_setting_with_single_underscores_in_the_environment_is_an_error(
    monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    (problem,) = problems_of(monkeypatch, **{written: "secret"})
    assert problem == f"{written} is no setting; did you mean {meant}?"


def test_log_level_in_the_environment_may_belong_to_other_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("LOG_LEVEL", "trace")
    load_settings()


def test_sandboxes_need_their_walls_in_a_tee_unless_a_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("ATTESTATION__DSTACK_SOCKET", "dstack.sock")

    def required(demand: str) -> bool:
        monkeypatch.setenv("SANDBOX", demand)
        return load_settings().sandbox_required

    demands = ("", "available", "required")
    assert [required(demand) for demand in demands] == [False, False, True]
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind("dstack.sock")
        assert [required(demand) for demand in demands] == [True, False, True]
    assert problems_of(monkeypatch, SANDBOX="yes") == (
        "SANDBOX: must be 'required' or 'available'",
    )


def test_a_socket_that_may_not_be_looked_at_is_no_enclave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("ATTESTATION__DSTACK_SOCKET", str(tmp_path / ("x" * 300)))
    assert not load_settings().attestation.has_agent


@pytest.mark.parametrize(
    ("name", "value"), [("ATTESTATION__MODEL_POLICY", "require"), ("ATTESTATION__E2EE", "true")]
)
def test_proof_that_is_required_needs_an_endpoint_over_tls(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("ATTESTATION__MODEL_PINS", "pins.json")
    plain = problems_of(monkeypatch, LLM__BASE_URL="http://model.test/v1", **{name: value})
    assert plain == (f"{name}: needs an LLM__BASE_URL that begins with https://",)
    monkeypatch.setenv("LLM__BASE_URL", "https://model.test/v1")
    assert load_settings().llm.base_url == "https://model.test/v1"


def test_a_key_and_a_password_in_the_address_cannot_both_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM__BASE_URL", "https://ada:sesame@model.test/v1")
    (problem,) = problems_of(monkeypatch, LLM__API_KEY="sk-sesame")
    assert problem.startswith("LLM__API_KEY: must be unset, or LLM__BASE_URL without user")
    assert "sesame" not in problem


def test_proof_that_is_required_needs_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    [problem] = problems_of(monkeypatch, ATTESTATION__MODEL_POLICY="require")
    assert problem.startswith("ATTESTATION__MODEL_PINS: is required by ATTESTATION__MODEL_POLICY=")
    assert "signal-tee-bot attest model" in problem


def test_encryption_needs_a_policy_that_finds_the_models_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [problem] = problems_of(monkeypatch, ATTESTATION__E2EE="true", ATTESTATION__MODEL_POLICY="off")
    assert problem.startswith(
        "ATTESTATION: has ATTESTATION__E2EE, which needs ATTESTATION__MODEL_POLICY=warn or require"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", "\U0001f440"),
        ("off", None),
        ("", None),
        ("\U0001f44d\U0001f3fd", "\U0001f44d\U0001f3fd"),
    ],
)
def test_the_reaction_is_an_emoji_or_a_plain_yes(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: str | None
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.setenv("BOT__ACK_REACTION", value)
    assert load_settings().bot.ack_reaction == expected


@pytest.mark.parametrize(
    "name", [{"model_policy": "require"}, {"model_policy": "warn", "e2ee": True}]
)
def test_voices_go_to_no_model_that_nothing_vouches_for(name: dict[str, object]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(
            {
                "signal": {"phone_number": NUMBER},
                "llm": {"transcription_model": "whisper"},
                "attestation": name,
            }
        )
    assert caught.value.problems[0].startswith("LLM__TRANSCRIPTION_MODEL: only the model that")


# The file .env ------------------------------------------------------------------------------------


def problems_of_file(text: str) -> tuple[str, ...]:
    Path(".env").write_text(f"SIGNAL__PHONE_NUMBER={NUMBER}\n{text}")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return caught.value.problems


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("LLM_API_KEY", "LLM__API_KEY"),
        ("llm_api_key", "LLM__API_KEY"),
        ("LLM_APIKEY", "LLM__API_KEY"),
        ("LLMS__MODEL", "LLM__MODEL"),
        ("ACCESS_ADMIN", "ACCESS__ADMINS"),
        ("STOER__KEY", "STORE__KEY"),
        ("SANDBX", "SANDBOX"),
        ("MCP_SERVERS_TIME_COMMAND", "MCP__SERVERS__TIME__COMMAND"),
        ("MCP_SERVERS_MY_NOTES_ENV_TOKEN", "MCP__SERVERS__MY_NOTES__ENV__TOKEN"),
    ],
)
def test_a_name_in_env_that_looks_like_a_setting_is_an_error_with_the_setting(
    written: str, meant: str
) -> None:
    problem = f".env, line 3: {written} is no setting; did you mean {meant}?"
    assert problems_of_file(f"# mine\n{written}=secret\n") == (problem,)


def test_names_of_other_programs_may_stand_in_env() -> None:
    others = "HTTP_PROXY=x\nSIGNAL_CAPTCHA=x\nJAVA_HOME=/x\nOPENAI_API_KEY=x\nTZ=UTC\nX__Y=1\n"
    Path(".env").write_text(f"\ufeffSIGNAL__PHONE_NUMBER={NUMBER}\n{others}")
    assert load_settings().signal.phone_number == NUMBER


@pytest.mark.parametrize(
    "line", ["LLM__MODEL: x", "LLM__MODEL", "=x", 'LLM__MODEL="x', "two words=x"]
)
def test_a_line_of_env_that_cannot_be_read_is_an_error_with_file_and_line(
    line: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = (
        ".env, line 4: is no setting; NAME=value is expected, and a quotation mark that is closed"
        " again"
    )
    assert problems_of_file(f"\n# mine\n{line}\n") == (expected,)
    assert caplog.messages == []  # the library would add its own words


def test_a_folder_in_place_of_env_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").mkdir()
    assert problems_of(monkeypatch) == (".env: is a folder; a file is expected",)


def test_problems_of_env_and_of_settings_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM__CONTEXT_TOKENS", "few")
    first, second = problems_of_file("LOG_LEVEL=debug\n")
    assert first.startswith(".env, line 2: LOG_LEVEL")
    assert second.startswith("LLM__CONTEXT_TOKENS: ")


# Numbers as phones show them ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        "+49 1511 2345678", "+49-1511-2345678", "+49 (1511) 234.5678", " +491511 2345678 ",
        "\u202a+49\u00a01511\u20112345678\u202c",
    ],
)  # fmt: skip
def test_a_number_is_understood_as_phones_show_it(
    monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", shown)
    monkeypatch.setenv("ACCESS__ADMINS", f"{shown}, {NUMBER}")
    settings = load_settings()
    assert settings.signal.phone_number == "+4915112345678"
    assert settings.access.admins == {"+4915112345678", NUMBER}


@pytest.mark.parametrize(
    "wrong", ["01511 2345678", "+49 1511 x", "+0", "49 1511 2345678", "++49151123456"]
)
def test_other_texts_than_international_numbers_are_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    [problem] = problems_of(monkeypatch, SIGNAL__PHONE_NUMBER=wrong)
    assert "international form, such as +4915112345678" in problem
