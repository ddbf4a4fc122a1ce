"""The dashboard and the alerts: they use metrics that the bot has, and fire when they should.

Tests of alerts are skipped without promtool.
"""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.e2e.running_bot import world
from tests.e2e.scraped import ANY_PORT, bot_with_health, scrape
from tests.exposition import PREFIX, Exposition
from tests.fakes.openai_server import script, text, tool_calls

PROJECT: Final = Path(__file__).parents[2]
FOLDER: Final = PROJECT / "deploy" / "monitoring"
ALERTS: Final = FOLDER / "alerts.yaml"
OF_PROMETHEUS: Final = frozenset({"job", "instance"})
"""Labels that Prometheus gives to everything that it reads."""

SELECTOR: Final = re.compile(r"\b((?:signal_tee_bot|process)_\w+|up)\b(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def shown() -> list[str]:
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    panels = (panel for panel in dashboard["panels"] if panel["type"] != "row")
    return [target["expr"] for panel in panels for target in panel["targets"]]


# Metrics in expressions --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def said() -> Exposition:
    """Return the metrics of a bot after a conversation with a tool call."""

    async def talk() -> Exposition:
        steps = script(tool_calls(("calculate", {"expression": "127*43"})), text("5461"))
        async with (
            world(steps) as here,
            bot_with_health(here.settings(health={"listen": ANY_PORT})) as port,
        ):
            await here.signal.say("What is 127*43?")
            await here.answer()
            return await scrape(port)

    return asyncio.run(talk())


def test_every_series_in_expressions_exists(said: Exposition) -> None:
    known = said.labels() | {"up": {}}
    for expression in [*shown(), *(alert["expr"] for alert in alerts())]:
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


def test_everything_that_is_measured_is_on_the_dashboard(said: Exposition) -> None:
    def bare(names: Iterable[str]) -> set[str]:
        own = (name for name in names if name.startswith(PREFIX))
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in own}

    selected = [name for expression in shown() for name, _ in SELECTOR.findall(expression)]
    assert bare(said.labels()) == bare(selected)


# When they fire -----------------------------------------------------------------------------------


class Case(NamedTuple):
    """Series with a value for each minute: some that fire an alert, and some that do not."""

    alert: str
    fires: Mapping[str, str]
    silent: Mapping[str, str]
    after: int = 60
    """Minutes from the beginning to the evaluation."""


UP: Final = 'up{job="signal-tee-bot",instance="a"}'
STARTED: Final = 'process_start_time_seconds{job="signal-tee-bot",instance="a"}'
OPEN: Final = 'process_open_fds{job="signal-tee-bot",instance="a"}'
MOST: Final = 'process_max_fds{job="signal-tee-bot",instance="a"}'
MEMORY: Final = 'process_resident_memory_bytes{job="signal-tee-bot",instance="a"}'


def of_bot(name: str, **labels: str) -> str:
    both = {"job": "signal-tee-bot", "instance": "a", **labels}
    matchers = ",".join(f'{label}="{value}"' for label, value in both.items())
    return f"{PREFIX}{name}{{{matchers}}}"


def turns(outcome: str) -> str:
    return of_bot("turns_total", outcome=outcome)


FREE: Final = of_bot("store_disk_free_bytes")
OLDEST: Final = of_bot("oldest_unanswered_message_seconds")
REQUIRED: Final = of_bot("model_proof_required")
UNTIL: Final = of_bot("model_verified_until_timestamp_seconds")

CASES: Final = (
    Case("Down", {UP: "1x50 0x20"}, {UP: "1x50 0 0 1x20"}),
    # Started four times within minutes; once, as an update does.
    Case("Restarts", {STARTED: "1x50 2 3 4 5x20"}, {STARTED: "1x50 2x20"}),
    Case("DiskNearlyFull", {FREE: "200000000x70"}, {FREE: "900000000x70"}),
    # 60 GB are used up within a day at 3 GB an hour, not at 600 MB an hour. The rule looks at six
    # hours, so a fast fall in the first one alone is no reason.
    Case(
        "DiskNearlyFull",
        {FREE: "60000000000-50000000x430"},
        {FREE: "60000000000-10000000x430"},
        after=420,
    ),
    Case("MessagesWait", {OLDEST: "0x30 0+60x40"}, {OLDEST: "0x30 0+60x10 0x40"}),
    # Alerts at three failures of six, not at one of three (too few). Stopped turns do not fail.
    Case(
        "AnswersFail",
        {turns("failed"): "0x50 1 2 3x20", turns("answered"): "0x50 1 2 3x20"},
        {turns("failed"): "0x50 1x20", turns("answered"): "0x50 1 2x20"},
    ),
    # Also across a restart, which resets the counters.
    Case(
        "AnswersFail",
        {turns("failed"): "9x48 10 11 0 1 2 2x20", turns("answered"): "90x49 91 0 1x20"},
        {turns("failed"): "9x49 0 0x20", turns("answered"): "90x49 0 1 2x20"},
    ),
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
    Case("FewDescriptors", {OPEN: "900x70", MOST: "1024x70"}, {OPEN: "90x70", MOST: "1024x70"}),
    Case(
        "MemoryGrows",
        {MEMORY: "300000000+1000000x600"},
        # No alert: growth in the first hour only; a large process with a single peak.
        {MEMORY: "100000000+5000000x60 400000001x540"},
        after=600,
    ),
)


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("There is no promtool (package prometheus).")
    files = [_tests_of(alert, tmp_path) for alert in alerts()]
    command = (promtool, "test", "rules", *files)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
