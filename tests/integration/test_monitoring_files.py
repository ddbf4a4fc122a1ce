"""The dashboard and the alerts: they ask for what a bot really says, and fire when they should.

What promtool tests is skipped where there is none.
"""

import asyncio
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import world
from tests.e2e.scraped import ANY_PORT, scrape
from tests.exposition import PREFIX, Exposition
from tests.fakes.openai_server import script, text, tool_calls

PROJECT: Final = Path(__file__).parents[2]
FOLDER: Final = PROJECT / "deploy" / "monitoring"
ALERTS: Final = FOLDER / "alerts.yaml"
ROWS: Final = (
    "Is it well?", "People's experience", "Signal", "Model", "Tools", "Store", "Proof", "Process",
)  # fmt: skip
OF_PROMETHEUS: Final = frozenset({"job", "instance"})
"""Labels that Prometheus gives to everything that it reads."""

SELECTOR: Final = re.compile(r"\b((?:signal_tee_bot|process)_\w+|up)\b(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")
SETTING: Final = re.compile(r"\b[A-Z]+(?:__[A-Z]+)+(?:_[A-Z]+)*\b")
EVENT: Final = re.compile(r"(?<![\w/.-])([a-z]+\.[a-z]+_?[a-z]+)(?= (?:in the log|with))")


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def targets() -> Iterator[tuple[str, str]]:
    """The expressions of the dashboard, each with how its series are called."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def expressions() -> list[str]:
    return [expression for expression, _ in targets()] + [alert["expr"] for alert in alerts()]


# What they ask for --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def said() -> Exposition:
    """What a bot says that had a conversation with a tool."""

    async def talk() -> Exposition:
        steps = script(tool_calls(("calculate", {"expression": "127*43"})), text("5461"))
        async with world(steps) as here:
            settings = environment(here, HEALTH__LISTEN=ANY_PORT)
            async with daemon(settings, folder=here.folder) as bot:
                port = await bot.port()
                await here.signal.say("What is 127*43?")
                await here.answer()
                return await scrape(port)

    return asyncio.run(talk())


def test_every_series_that_is_asked_for_is_said_by_a_bot(said: Exposition) -> None:
    known = said.labels() | {"up": {}}
    for expression in expressions():
        selected = SELECTOR.findall(expression)
        assert selected, expression
        for name, matchers in selected:
            assert name in known, expression
            for label, how, value in MATCHER.findall(matchers):
                if label in OF_PROMETHEUS:
                    continue
                assert label in known[name], expression
                wanted = set(value.split("|")) if "~" in how else {value}
                assert wanted <= known[name][label], expression


def test_series_are_grouped_and_called_by_labels_that_they_have(said: Exposition) -> None:
    known = said.labels() | {"up": {}}
    for expression, legend in [*targets(), *((alert["expr"], "") for alert in alerts())]:
        having = OF_PROMETHEUS.union(*(known[name] for name, _ in SELECTOR.findall(expression)))
        groups = [set(re.findall(r"\w+", group)) for group in GROUPING.findall(expression)]
        shown = set(re.findall(r"{{(\w+)}}", legend))
        for group in groups:
            assert group <= having, expression
            assert shown <= group, expression
        assert shown <= having, expression


def test_everything_that_is_measured_is_on_the_dashboard(said: Exposition) -> None:
    shown = {name for expression, _ in targets() for name, _ in SELECTOR.findall(expression)}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    measured = {name for name in said.labels() if name.startswith(PREFIX)}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in measured} == {
        name for name in shown if name.startswith(PREFIX)
    }


def test_the_dashboard_can_be_read_without_its_author() -> None:
    whole = dashboard()
    titles = [panel["title"] for panel in whole["panels"] if panel["type"] == "row"]
    assert tuple(titles) == ROWS
    ids = [panel["id"] for panel in whole["panels"]]
    assert len(set(ids)) == len(ids)
    assert len({panel["title"] for panel in panels()}) == len(panels())
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all('job=~"$job",instance=~"$instance"' in one["expr"] for one in panel["targets"])


def test_no_panel_lies_on_another() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    for one, other in itertools.combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_every_alert_has_a_summary_and_a_remedy() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(set(names)) == len(names)
    for alert in alerts():
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}
        assert len(alert["annotations"]["runbook"]) > 80


def test_named_metrics_and_documents_exist() -> None:
    """Settings, events of the log and alerts that a text sends somebody to."""
    words = "\n".join(file.read_text() for file in FOLDER.iterdir())
    settings = (PROJECT / ".env.example").read_text()
    source = "\n".join(file.read_text() for file in (PROJECT / "bot").rglob("*.py"))
    assert {name for name in SETTING.findall(words) if name not in settings} == set()
    events = set(EVENT.findall(words))
    assert events
    assert {event for event in events if f'"{event}"' not in source} == set()
    names = {alert["alert"] for alert in alerts()}
    assert set(re.findall(r"\bSignalTeeBot\w+", words)) == names


# When they fire -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """An alert, with what a bot says when it fires and when not; a value for each minute.

    Attributes:
        alert: its name, without what all have in front.
        fires: series with their values.
        silent: the same; nothing of the alert is seen.
        after: minutes from the beginning to the look.
    """

    alert: str
    fires: Mapping[str, str]
    silent: Mapping[str, str]
    after: int = 60


UP: Final = 'up{job="signal-tee-bot",instance="a"}'
STARTED: Final = 'process_start_time_seconds{job="signal-tee-bot",instance="a"}'
OPEN: Final = 'process_open_fds{job="signal-tee-bot",instance="a"}'
MOST: Final = 'process_max_fds{job="signal-tee-bot",instance="a"}'
MEMORY: Final = 'process_resident_memory_bytes{job="signal-tee-bot",instance="a"}'


def of_bot(name: str, **labels: str) -> str:
    """Return one of the bot's own series."""
    both = {"job": "signal-tee-bot", "instance": "a", **labels}
    matchers = ",".join(f'{label}="{value}"' for label, value in both.items())
    return f"{PREFIX}{name}{{{matchers}}}"


def turns(outcome: str) -> str:
    return of_bot("turns_total", outcome=outcome)


CONNECTED: Final = of_bot("signal_connected")
UNANSWERED: Final = of_bot("signal_gateway_unanswered_total", kind="text")
WRITABLE: Final = of_bot("store_writable")
FREE: Final = of_bot("store_disk_free_bytes")
OLDEST: Final = of_bot("oldest_unanswered_message_seconds")
GIVEN_UP: Final = of_bot("messages_given_up_total")
REQUIRED: Final = of_bot("model_proof_required")
UNTIL: Final = of_bot("model_verified_until_timestamp_seconds")
WRONG: Final = of_bot("answer_signatures_total", outcome="wrong")
NOT_MADE: Final = of_bot("own_proofs_total", outcome="not_made")

CASES: Final = (
    Case("Down", {UP: "1x50 0x20"}, {UP: "1x50 0 0 1x20"}),
    Case("Down", {}, {UP: "1x70"}),
    # Started four times within minutes; once, as an update does.
    Case("Restarts", {STARTED: "1x50 2 3 4 5x20"}, {STARTED: "1x50 2x20"}),
    Case("SignalDisconnected", {CONNECTED: "1x50 0x20"}, {CONNECTED: "1x55 0 0 0 1x10"}),
    Case("GatewayStuck", {UNANSWERED: "0+1x70"}, {UNANSWERED: "0x50 2x20"}),
    Case("StoreRefuses", {WRITABLE: "1x50 0x20"}, {WRITABLE: "1x70"}),
    Case("DiskNearlyFull", {FREE: "200000000x70"}, {FREE: "900000000x70"}),
    # 3 GB an hour of 60 GB are used up in a day; 600 MB an hour are not. Six hours are looked at:
    # what fell fast within the first one says nothing.
    Case(
        "DiskNearlyFull",
        {FREE: "60000000000-50000000x430"},
        {FREE: "60000000000-10000000x430"},
        after=420,
    ),
    Case("DiskNearlyFull", {FREE: "200000000x70"}, {FREE: "60000000000-100000000x70"}),
    Case("MessagesWait", {OLDEST: "0x30 0+60x40"}, {OLDEST: "0x30 0+60x10 0x40"}),
    # Three of six failed; one of three, which is too few to tell; stopped ones are no failures.
    Case(
        "AnswersFail",
        {turns("failed"): "0x50 1 2 3x20", turns("answered"): "0x50 1 2 3x20"},
        {turns("failed"): "0x50 1x20", turns("answered"): "0x50 1 2x20"},
    ),
    # Also over a restart, at which the counters begin anew.
    Case(
        "AnswersFail",
        {turns("failed"): "9x48 10 11 0 1 2 2x20", turns("answered"): "90x49 91 0 1x20"},
        {turns("failed"): "9x49 0 0x20", turns("answered"): "90x49 0 1 2x20"},
    ),
    Case("Bug", {turns("bug"): "0x50 1x20"}, {turns("bug"): "0x70"}),
    Case("MessagesGivenUp", {GIVEN_UP: "0x50 1x20"}, {GIVEN_UP: "4x30 0x40"}),
    Case(
        "ModelUnverified",
        {REQUIRED: "1x70", UNTIL: "1800x70"},
        {REQUIRED: "0x70", UNTIL: "1800x70"},
    ),
    Case(
        "ModelUnverified",
        {REQUIRED: "1x70", UNTIL: "0x70"},
        {REQUIRED: "1x70", UNTIL: "7200x70"},
    ),
    Case("ModelProofExpires", {UNTIL: "3700x70"}, {UNTIL: "4200x70"}),
    Case("ModelProofExpires", {UNTIL: "3000x70"}, {UNTIL: "0x70"}),
    Case("WrongSignature", {WRONG: "0x50 1x20"}, {WRONG: "0x70"}),
    Case("OwnProofFails", {NOT_MADE: "0x50 1x20"}, {NOT_MADE: "0x70"}),
    Case("FewDescriptors", {OPEN: "900x70", MOST: "1024x70"}, {OPEN: "90x70", MOST: "1024x70"}),
    Case(
        "MemoryGrows",
        {MEMORY: "300000000+1000000x600"},
        # It grew in its first hour and has stayed so; and a large one that had a peak.
        {MEMORY: "100000000+5000000x60 400000001x540"},
        after=600,
    ),
)


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("There is no promtool (package prometheus).")
    return found


def run(promtool: str, *arguments: str) -> str:
    done = subprocess.run(
        (promtool, *arguments), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_has_a_case() -> None:
    assert {f"SignalTeeBot{case.alert}" for case in CASES} == {a["alert"] for a in alerts()}


def test_prometheus_accepts_the_files(promtool: str) -> None:
    run(promtool, "check", "rules", str(ALERTS))
    run(promtool, "check", "config", str(FOLDER / "prometheus.yaml"))


def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    run(promtool, "test", "rules", *(_tests_of(alert, tmp_path) for alert in alerts()))


def _tests_of(alert: dict[str, Any], folder: Path) -> str:
    """Write the cases of an alert, and a rule file with it alone, which takes a tenth of the time.

    Returns:
        the name of the cases' file.
    """
    name = alert["alert"]
    rules, tests = folder / f"{name}.yaml", folder / f"{name}.tests.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [alert]}]}))
    cases = [case for case in CASES if name == f"SignalTeeBot{case.alert}"]
    units = [_unit(case, fires=fires) for case in cases for fires in (True, False)]
    tests.write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": units}))
    return str(tests)


def _unit(case: Case, *, fires: bool) -> dict[str, Any]:
    series = case.fires if fires else case.silent
    firing = f'count(ALERTS{{alertname="SignalTeeBot{case.alert}",alertstate="firing"}})'
    return {
        "name": f"{case.alert} {'fires' if fires else 'is silent'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{case.after}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }
