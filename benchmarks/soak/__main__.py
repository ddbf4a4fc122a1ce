"""Soak the bot: `python -m benchmarks.soak [--minutes 30] [--seed 1] [--folder soak]`."""

import argparse
import asyncio
import itertools
import json
import signal
import statistics
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.report import machine
from benchmarks.soak import plot
from benchmarks.soak.audit import Verdict, audit, read_rows
from benchmarks.soak.faults import CALM_AT_THE_END_SECONDS, Life, lives
from benchmarks.soak.growth import Growth, growth
from benchmarks.soak.people import ANSWER_SECONDS
from benchmarks.soak.samples import Sample, sample
from benchmarks.soak.stage import SoakFailed, Stage, stage
from tools.http import IDLE_CONNECTION_SECONDS

MINUTES: Final = 30.0
MIN_MINUTES: Final = 10.0
SAMPLE_SECONDS: Final = 2.0
REST_SECONDS: Final = (12.0, 30.0)
"""Between two rests: in a short soak, and in a long one."""

REST_WAIT_SECONDS: Final = 40.0
SETTLING_SECONDS: Final = 1.5
DRAINED_SECONDS: Final = IDLE_CONNECTION_SECONDS + 3.0
DRAINED_EVERY: Final = 4
"""Every so many rests, one is long enough to close idle connections."""

STOPPED_BY_A_PERSON: Final = 130
BUGS: Final = frozenset({"app.bug", "turn.bug"})


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a soak."""

    minutes: float
    seed: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Findings:
    """Results of a soak.

    Attributes:
        samples: of the bot.
        growths: what they say.
        verdict: on the answers.
        faults: sentences, of both and of the log; none when all is well.
    """

    samples: list[Sample]
    growths: list[Growth]
    verdict: Verdict
    faults: list[str]


async def soak(plan: Plan) -> bool:
    """Soak the bot, write a report, and return whether all is well."""
    random = Random(plan.seed)
    samples: list[Sample] = []
    async with stage(random) as here:
        try:
            await _live(here, plan, random, samples)
        finally:
            (plan.folder / "bot.log").write_text("\n".join(here.log) + "\n")
        rows = read_rows(here.store)
        verdict = audit(here.crowd.said, here.sent, rows, notes=here.notes(), excuses=here.excuses)
    growths = growth(samples)
    faults = [*verdict.faults, *_other_faults(here, growths)]
    findings = Findings(samples, growths, verdict, faults)
    _write(plan, here, findings)
    _say(here, findings)
    print(f"Results, picture and log: {plan.folder}")
    return not faults


async def _live(here: Stage, plan: Plan, random: Random, samples: list[Sample]) -> None:
    *mortal, last = lives(plan.minutes * 60, random)
    calm = min(CALM_AT_THE_END_SECONDS, last.seconds / 4)
    async with asyncio.TaskGroup() as tasks:
        crowd = tasks.create_task(here.crowd.live())
        sampling = tasks.create_task(_sample(here, samples))
        resting = tasks.create_task(_rest(here, samples, plan.minutes))
        for life in mortal:
            await here.live(life)
            _tell(here, plan, life)

        async def end() -> None:
            resting.cancel()
            here.crowd.may_write.set()
            here.crowd.stop()
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                await crowd

        await here.live_to_the_end(last, calm_seconds=calm, end=end)
        sampling.cancel()


async def _sample(here: Stage, samples: list[Sample]) -> None:
    while True:
        await _take(here, samples)
        await asyncio.sleep(SAMPLE_SECONDS)


async def _take(
    here: Stage, samples: list[Sample], *, rest: bool = False, drained: bool = False
) -> None:
    if here.process is not None:
        taken = await sample(
            here.process,
            began=here.began,
            store=here.store,
            port=here.port,
            rest=rest,
            drained=drained,
        )
        if taken is not None:
            samples.append(taken)


async def _rest(here: Stage, samples: list[Sample], minutes: float) -> None:
    """Sometimes wait until nothing happens any more, and look at the bot then."""
    shortest, longest = REST_SECONDS
    every = min(longest, max(shortest, minutes * 60 / 60))
    for number in itertools.count():
        await asyncio.sleep(every)
        drained = number % DRAINED_EVERY == 0
        async with here.undisturbed:
            here.crowd.may_write.clear()
            if await _nobody_waits(here):
                await asyncio.sleep(DRAINED_SECONDS if drained else SETTLING_SECONDS)
                await _take(here, samples, rest=True, drained=drained)
            here.crowd.may_write.set()


async def _nobody_waits(here: Stage) -> bool:
    for _ in range(int(REST_WAIT_SECONDS / SETTLING_SECONDS)):
        if not here.crowd.waiting:
            return True
        await asyncio.sleep(SETTLING_SECONDS)
    return False


# Results ------------------------------------------------------------------------------------------


def _other_faults(here: Stage, growths: list[Growth]) -> list[str]:
    events = Counter(_events(here.log))
    return [
        *(
            f"{one.measure} grew by {one.rise:.1f} {one.unit} in {one.minutes:.0f} minutes"
            f" of life {one.life}; {one.most:g} is allowed."
            for one in growths
            if not one.is_fine
        ),
        *(f"The log says {name} {events[name]} times." for name in BUGS & events.keys()),
        *([] if growths else ["No life was long enough to tell whether anything grows."]),
        *(
            [f"{len(here.crowd.late)} messages waited for longer than {ANSWER_SECONDS:g} seconds."]
            if here.crowd.late
            else []
        ),
    ]


def _events(log: list[str]) -> list[str]:
    return [str(json.loads(line)["event"]) for line in log if line.startswith("{")]


def _write(plan: Plan, here: Stage, findings: Findings) -> None:
    results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "minutes": plan.minutes,
        "seed": plan.seed,
        "well": not findings.faults,
        "faults": findings.faults,
        "counts": findings.verdict.counts,
        "ends": dict(here.ends),
        "log": Counter(_events(here.log)),
        "growth": [asdict(one) for one in findings.growths],
        "marks": [asdict(mark) for mark in here.marks],
        "samples": [asdict(one) for one in findings.samples],
    }
    (plan.folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    how = "NOT well" if findings.faults else "all is well"
    title = f"{plan.minutes:g} minutes, seed {plan.seed}: {how}"
    plot.draw(plan.folder / "soak.png", findings.samples, here.marks, title=title)


def _say(here: Stage, findings: Findings) -> None:
    for name, count in findings.verdict.counts.items():
        print(f"{count:>8,}  {name}")
    troubles = Counter(mark.kind for mark in here.marks)
    print("Troubles: " + ", ".join(f"{n} x {kind}" for kind, n in sorted(troubles.items())))
    waits = sorted(seconds for _, seconds in here.crowd.waits)
    if len(waits) > 1:
        hundredths = statistics.quantiles(waits, n=100)
        print(
            f"Seconds to an answer, troubles included: {hundredths[49]:.1f} in the middle,"
            f" {hundredths[98]:.1f} for one in a hundred, {waits[-1]:.1f} at the most."
        )
    for one in findings.growths:
        print(
            f"Life {one.life}, {one.minutes:.1f} minutes, {one.measure}: {one.first:.1f} →"
            f" {one.last:.1f} {one.unit}, line {one.rise:+.2f} (at most {one.most:+g})"
        )
    print("\n".join(findings.faults) if findings.faults else "All is well.")


def _tell(here: Stage, plan: Plan, life: Life) -> None:
    print(
        f"{here.now() / 60:5.1f} of {plan.minutes:g} minutes: {life.end};"
        f" {len(here.crowd.said)} messages so far",
        file=sys.stderr,
        flush=True,
    )


async def _until_done_or_told_to_stop(plan: Plan) -> bool:
    """Soak; SIGTERM ends it as Ctrl-C does, with everything that it has started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await soak(plan)


def _words(failures: ExceptionGroup[Exception]) -> list[str]:
    """The words of all exceptions in a tree."""
    return [
        words
        for one in failures.exceptions
        for words in (_words(one) if isinstance(one, ExceptionGroup) else [str(one)])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("soak"), help="for what comes of it")
    chosen = parser.parse_args()
    if chosen.minutes < MIN_MINUTES:
        parser.error(f"--minutes: at least {MIN_MINUTES:g}, or nothing can be told of growth")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    try:
        well = asyncio.run(
            _until_done_or_told_to_stop(Plan(chosen.minutes, chosen.seed, chosen.folder))
        )
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("Stopped; nothing is left running.", file=sys.stderr)
        sys.exit(STOPPED_BY_A_PERSON)
    except ExceptionGroup as failures:
        _, others = failures.split(SoakFailed)
        if others is not None:
            raise
        sys.exit("\n".join(f"soak: {words}" for words in _words(failures)))
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
