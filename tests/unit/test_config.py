"""Settings as an operator meets them."""

import re
import socket
from pathlib import Path

import pytest

from bot.config.loading import REMOVED, load_settings, setting_names
from bot.config.settings import Settings
from bot.errors import SettingsError

NUMBER = "+4915100000000"
ROOT = Path(__file__).parents[2]
INTERNAL = {"TOOLS__CALLS_PER_MINUTE", "TOOLS__CALLS_PER_MINUTE_TOTAL"}
"""Settings for tests and benchmarks, which no document names."""


@pytest.fixture(autouse=True)
def only_the_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start from the one required setting, in an empty folder."""
    for name in setting_names():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setenv("SIGNAL__PHONE_NUMBER", NUMBER)
    monkeypatch.chdir(tmp_path)


def settings_of(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def problems_of(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[str, ...]:
    """Return the lines that an operator would read."""
    with pytest.raises(SettingsError) as caught:
        settings_of(monkeypatch, **environment)
    return caught.value.problems


def problems_of_file(text: str) -> tuple[str, ...]:
    Path(".env").write_text(f"SIGNAL__PHONE_NUMBER={NUMBER}\n{text}")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return caught.value.problems


NO_VALUE = "has no value of its own; set what is below it, such as"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SIGNAL__PHONE_NUMBER", "01511 2345678", "international form, such as +4915112345678"),
        ("SIGNAL__PHONE_NUMBER", "+49 1511 x", "international form"),
        ("SIGNAL__PHONE_NUMBER", "+0", "international form"),
        ("SIGNAL__PHONE_NUMBER", "49 1511 2345678", "international form"),
        ("SIGNAL__PHONE_NUMBER", "++49151123456", "international form"),
        ("SIGNAL__URL", "ftp://example", "unix:/path/to/socket"),
        ("SIGNAL__URL", "unix:relative/socket", "unix:/path/to/socket"),
        ("SIGNAL__URL", "tcp://host", "tcp://host:port"),
        ("SIGNAL__URL", "tcp://host:99999", ""),
        ("SIGNAL__URL", "tcp://host:secret", "tcp://host:port"),
        ("SIGNAL__URL", "spawn:/usr/bin/signal-cli", "spawn:,"),
        ("BOT__ACK_REACTION", "eyes", "one emoji"),
        ("BOT__PROFILE_NAME", "x" * 27, "must have at most 26 characters"),
        ("LLM__BASE_URL", "example.org", "http:// or https://"),
        ("LLM__BASE_URL", "http://[::1", "http:// or https://"),
        ("LLM__BASE_URL", "http://two words/v1", "http:// or https://"),
        ("LLM__BASE_URL", "http://host:secret", "http:// or https://"),
        ("LLM__BASE_URL", "http://host:99999/v1", ""),
        ("LLM__BASE_URL", "http://1.2.3.444/v1", "must name a host"),
        ("LLM__BASE_URL", "http://host/v1/chat/completions", "must not contain /chat/completions"),
        ("LLM__API_KEY", "schlüsselsecret", "must be"),
        ("LLM__API_KEY", "two\nlines secret", "must be"),
        ("LLM__TIMEOUT_SECONDS", "inf", "finite"),
        ("STORE__RETENTION_DAYS", "-1", "greater than or equal to 0"),
        ("ACCESS__POLICY", "friends", "'open', 'allowlist' or 'pairing'"),
        ("ACCESS__ALLOWED", "bob", "numbers"),
        ("HEALTH__LISTEN", "8081", "host:port"),
        ("HEALTH__LISTEN", "host:²", "host:port"),
        ("LOG__LEVEL", "loud", "'debug'"),
        ("TOOLS__CALCULATOR__ENABLED", "perhaps", "true or false"),
        ("TOOLS__DISABLED", "remeber", "a tool that does not exist; did you mean remember?"),
        ("SANDBOX", "yes", "must be 'required' or 'available'"),
        (
            "MCP__SERVERS__A__COMAND",
            "secret",
            "no such setting; did you mean MCP__SERVERS__A__COMM",
        ),
        ("MCP__SERVERS__A__COMMAND", "run 'it", "must be a command line; a quotation mark is miss"),
        (
            "MCP__SERVERS__A__URL",
            "ftp://x",
            "must be an http:// or https:// address, or unix:/path",
        ),
        # Names below a section have the nearest setting.
        ("LLM__APIKEY", "secret", "no such setting; did you mean LLM__API_KEY?"),
        ("TOOLS__CALCULATOR__ENABLE", "1", "did you mean TOOLS__CALCULATOR__ENABLED?"),
        ("TOOLS__CALCULATRO__ENABLED", "1", "did you mean TOOLS__CALCULATOR__ENABLED?"),
        # Sections have no values.
        ("TOOLS__WEATHER", "secret", f"{NO_VALUE} TOOLS__WEATHER__ENABLED"),
        ("TOOLS__WEATHER", '{"enabled": false}', f"{NO_VALUE} TOOLS__WEATHER__ENABLED"),
        ("MCP__SERVERS__A", "[]", f"{NO_VALUE} MCP__SERVERS__A__COMMAND"),
        ("MCP__SERVERS__A", '{"command": "sh"}', f"{NO_VALUE} MCP__SERVERS__A__COMMAND"),
        ("MCP__SERVERS__A__ENV", "null", f"{NO_VALUE} MCP__SERVERS__A__ENV__NAME"),
        *((name, "false", f"no longer exists; {instead}") for name, instead in REMOVED.items()),
    ],
)
def test_wrong_setting_is_one_line_with_its_name_and_expected_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    problem = problems_of(monkeypatch, **{name: value})[0]
    assert problem.startswith(f"{name}: ")
    assert expected in problem
    assert "secret" not in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (
            {"MCP__SERVERS__A__TOKEN": "sesame"},
            "MCP__SERVERS__A: needs MCP__SERVERS__A__COMMAND or MCP__SERVERS__A__URL, and not both",
        ),
        (
            {"MCP__SERVERS__A-B__COMMAND": "run"},
            "MCP__SERVERS__A-B: needs a name of letters, digits and underscores, up to 32",
        ),
        (
            {"MCP__SERVERS__CALCULATE__COMMAND": "run"},
            "MCP__SERVERS__CALCULATE: has the name of a built-in tool; choose another",
        ),
        (
            {
                "ATTESTATION__MODEL_POLICY": "require",
                "ATTESTATION__MODEL_PINS": "pins.json",
                "LLM__BASE_URL": "http://model.test/v1",
            },
            "ATTESTATION__MODEL_POLICY: needs an LLM__BASE_URL that begins with https://",
        ),
        (
            {"ATTESTATION__E2EE": "true", "LLM__BASE_URL": "http://model.test/v1"},
            "ATTESTATION__E2EE: needs an LLM__BASE_URL that begins with https://",
        ),
        (
            {"ATTESTATION__MODEL_POLICY": "require"},
            "ATTESTATION__MODEL_PINS: is required by ATTESTATION__MODEL_POLICY=",
        ),
        (
            {"ATTESTATION__E2EE": "true", "ATTESTATION__MODEL_POLICY": "off"},
            "ATTESTATION: has ATTESTATION__E2EE, which needs ATTESTATION__MODEL_POLICY=warn or req",
        ),
        (
            {"LLM__BASE_URL": "https://ada:sesame@model.test/v1", "LLM__API_KEY": "sk-sesame"},
            "LLM__API_KEY: must be unset, or LLM__BASE_URL without user",
        ),
        (
            {"LLM__TRANSCRIPTION_MODEL": "whisper", "ATTESTATION__MODEL_POLICY": "require"},
            "LLM__TRANSCRIPTION_URL: only the model that",
        ),
        (
            {
                "LLM__SPEECH_MODEL": "kokoro",
                "LLM__SPEECH_URL": "http://voice.example.com/v1",
                "ATTESTATION__E2EE": "true",
            },
            "LLM__SPEECH_URL: only the model that",
        ),
        (
            {"LLM__SPEECH_URL": "http://127.0.0.1:8000/v1"},
            "LLM__SPEECH_URL and LLM__SPEECH_KEY are nothing",
        ),
        (
            {"LLM__TRANSCRIPTION_MODEL": "whisper", "LLM__TRANSCRIPTION_KEY": "sesame"},
            "LLM__TRANSCRIPTION_KEY is for LLM__TRANSCRIPTION_URL",
        ),
        ({"LLM_API_KEY": "sesame"}, "LLM_API_KEY is no setting; did you mean LLM__API_KEY?"),
        (
            {"MCP_SERVERS_A_COMMAND": "sesame"},
            "MCP_SERVERS_A_COMMAND is no setting; did you mean MCP__SERVERS__A__COMMAND?",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], problem: str
) -> None:
    problems = problems_of(monkeypatch, **environment)
    assert [line for line in problems if line.startswith(problem)]
    assert "sesame" not in str(problems)


def test_every_wrong_setting_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM__CONTEXT_TOKENS", "few")
    problems = problems_of_file("LOG_LEVEL=debug\nSTORE__PTH=x\n")
    assert [re.split(r"[: ]", line)[0] for line in problems] == [
        ".env,",
        "LLM__CONTEXT_TOKENS",
        "STORE__PTH",
    ]


@pytest.mark.parametrize(
    "name", ["LLM", "LOG", "BOT", "OTHER__THING", "SIGNALS__X", "LOG_LEVEL", "JAVA_HOME"]
)
def test_names_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    settings_of(monkeypatch, **{name: "anything"})


def test_empty_means_unset_and_switches_the_health_server_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("LLM__MODEL=from-file\n")
    names = ("LLM__API_KEY", "LLM__MODEL", "ACCESS__ALLOWED", "STORE__KEY", "HEALTH__LISTEN")
    settings = settings_of(monkeypatch, **dict.fromkeys(names, ""))
    assert settings.llm.api_key is None
    assert settings.llm.model == "from-file"
    assert settings.access.allowed == frozenset()
    assert settings.store.key is None
    assert settings.health.listen == ""


def test_environment_wins_over_env_and_env_over_secret_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = tmp_path / "credentials"
    secrets.mkdir()
    for name in (
        "LLM__API_KEY",
        "LLM__MODEL",
        "STORE__KEY",
        "TOOLS__WEB_SEARCH__API_KEY",
        "MCP__SERVERS__NOTES__TOKEN",
        "MCP__SERVERS__FILES__ENV__API_KEY",
    ):
        (secrets / name).write_text("sk-from-secrets\n")
    Path(".env").write_text("LLM__API_KEY=sk-from-file\nLLM__MODEL=from-file\n")
    settings = settings_of(
        monkeypatch,
        CREDENTIALS_DIRECTORY=str(secrets),
        LLM__MODEL="from-environment",
        MCP__SERVERS__NOTES__URL="http://127.0.0.1:3000/mcp",
        MCP__SERVERS__NOTES__TOOLS="read, list,",
        MCP__SERVERS__FILES__COMMAND="server --root '/a b'",
    )
    assert settings.llm.model == "from-environment"
    for key, value in (
        (settings.llm.api_key, "sk-from-file"),
        (settings.store.key, "sk-from-secrets"),
        (settings.tools.web_search.api_key, "sk-from-secrets"),
    ):
        assert key is not None
        assert key.get_secret_value() == value
    assert "sk-" not in repr(settings)
    files, notes = settings.mcp.servers["files"], settings.mcp.servers["notes"]
    assert files.command == ("server", "--root", "/a b")
    assert files.environment == {"API_KEY": "sk-from-secrets"}
    assert notes.headers == {"Authorization": "Bearer sk-from-secrets"}
    assert (files.tools, notes.tools) == (frozenset(), frozenset({"read", "list"}))


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
    people = f"{shown}, {NUMBER} , 7F3C1A52-6b1e-4a0e-9a55-3a1e1b6f0d11,"
    settings = settings_of(monkeypatch, SIGNAL__PHONE_NUMBER=shown, ACCESS__ADMINS=people)
    assert settings.signal.phone_number == "+4915112345678"
    assert settings.access.admins == {
        "+4915112345678",
        NUMBER,
        "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11",
    }


def test_env_example_names_every_setting_and_nothing_else() -> None:
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"\b(?:[A-Z]+__[A-Z0-9_]+|SANDBOX)(?==|\b)", example))
    assert named == setting_names() - INTERNAL


def test_tools_can_be_disabled_by_name_together_with_their_siblings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP__SERVERS__NOTES__URL", "http://127.0.0.1:3000/mcp")
    settings = settings_of(monkeypatch, TOOLS__DISABLED="remember, notes_write,")
    assert settings.tools.withheld == {"remember", "recall", "forget", "notes_write"}


def test_sandboxes_need_their_walls_in_a_tee_unless_a_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ATTESTATION__DSTACK_SOCKET", "dstack.sock")
    demands = ("", "available", "required")

    def required() -> list[bool]:
        return [settings_of(monkeypatch, SANDBOX=demand).sandbox_required for demand in demands]

    assert required() == [False, False, True]
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind("dstack.sock")
        assert required() == [True, False, True]
    monkeypatch.setenv("ATTESTATION__DSTACK_SOCKET", "x" * 300)  # which cannot be looked at
    assert required() == [False, False, True]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", "👀"), ("off", None), ("", None), ("👍🏽", "👍🏽")],
)
def test_the_reaction_is_an_emoji_or_a_plain_yes(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: str | None
) -> None:
    assert settings_of(monkeypatch, BOT__ACK_REACTION=value).bot.ack_reaction == expected


# The file .env ------------------------------------------------------------------------------------


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


def test_names_of_other_programs_may_stand_in_env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGNAL__PHONE_NUMBER")
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
