"""How long does proof take: to check a bundle, to check a model's report, and to get one by chat?

The machines, Intel's collateral, NVIDIA's tokens and the cloud are those of the tests, with eight
GPUs as in a real report. The program itself checks them. It all runs in this process.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.platform import BenchmarkFailed
from benchmarks.report import Figure
from bot.attestation.bundle import Bundle
from bot.attestation.checks import Report
from bot.attestation.collateral import CollateralSource
from bot.attestation.http import open_http
from bot.attestation.near_ai.client import Gathered, NearAiClient
from bot.attestation.near_ai.verification import verify_model
from bot.attestation.quote import Collateral
from bot.attestation.verification import Asked, verify_bundle
from bot.signal.events import Person
from tests.e2e.proving_world import ProvingWorld, proving_world
from tests.e2e.running_bot import running_bot
from tests.fakes.soft_gpu import SoftGpus

TIMES: Final = 100
QUICK_TIMES: Final = 3
GPUS: Final = 8
CHALLENGE: Final = "purple elephants"


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the middle of many."""
    times = QUICK_TIMES if quick else TIMES
    async with proving_world() as proving:
        proving.cloud.gpus = SoftGpus(GPUS)
        settings = proving.settings("off")
        async with running_bot(settings, trust=proving.trust):
            asked = [await _ask(proving, number) for number in range(times)]
        bundle = asked[-1][1]
        gathered = await _gathered(proving)
        checks = _middle_ms(times, lambda: _check_bundle(proving, bundle))
        reports = _middle_ms(times, lambda: _check_report(proving, gathered))
    return (
        Figure("check of a bundle, offline, p50", checks, "ms", at_most=50),
        Figure("check of a model's report with 8 GPUs, p50", reports, "ms", at_most=150),
        Figure(
            "!verify to its answer with the file, p50",
            statistics.median(seconds for seconds, _ in asked) * 1000,
            "ms",
            at_most=100,
        ),
    )


async def _ask(proving: ProvingWorld, number: int) -> tuple[float, Bundle]:
    """Ask for a proof as a new person; return the time that it took, and the proof."""
    person = Person(aci=f"00000000-0000-4000-8000-{number:012d}")
    began = time.perf_counter()
    await proving.here.signal.say(f"!verify {CHALLENGE}", author=person)
    [file] = (await proving.here.answer()).attachments
    return time.perf_counter() - began, Bundle.parse(file.data)


async def _gathered(proving: ProvingWorld) -> Gathered:
    async with open_http(tls=proving.trust.tls) as http:
        client = NearAiClient(
            http=http,
            collateral=CollateralSource(http, proving.intel.url("")),
            base_url=proving.cloud.base_url,
            model=proving.cloud.model,
            api_key=None,
            trust=proving.trust,
        )
        return await client.gather()


def _check_bundle(proving: ProvingWorld, bundle: Bundle) -> Report:
    collateral = Collateral.parse(proving.cloud.platform.collateral)
    return verify_bundle(
        bundle,
        Asked(CHALLENGE),
        collateral=lambda _: collateral,
        now=int(time.time()),
        trust=proving.trust,
    )


def _check_report(proving: ProvingWorld, gathered: Gathered) -> Report:
    return verify_model(
        gathered.evidence,
        collateral=gathered.collateral_for,
        nras=gathered.nras,
        now=int(time.time()),
        trust=proving.trust,
    ).report


def _middle_ms(times: int, check: Callable[[], Report]) -> float:
    """Return the median time of many checks; each has to pass."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        report = check()
        taken.append(time.perf_counter() - began)
        if not report.passed:
            names = ", ".join(check.name for check in report.failures)
            raise BenchmarkFailed(f"these checks failed: {names}")
    return statistics.median(taken) * 1000
