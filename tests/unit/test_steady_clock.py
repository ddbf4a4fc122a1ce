"""What time it is when the machine's clock jumps."""

from structlog.testing import capture_logs

from bot.dispatch.background.steady_clock import DOUBT_SECONDS, MAX_PAUSE_SECONDS, SteadyClock

TODAY = 1_795_000_000.0
DAY = 86_400.0
YEAR = 365 * DAY


class Machine:
    """A wall clock that can be set, and time that passes."""

    def __init__(self, wall: float = TODAY) -> None:
        self.wall = wall
        self.elapsed = 1_000.0
        self.clock = SteadyClock(wall=lambda: self.wall, elapsed=lambda: self.elapsed)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


def test_time_that_passes_is_followed_however_long_the_machine_sleeps() -> None:
    machine = Machine()
    for seconds in (1.0, 3_600.0, 100 * DAY):
        machine.pass_by(seconds)
        assert machine.clock.time() == machine.clock.past() == machine.wall


def test_a_small_step_is_followed_at_once() -> None:
    machine = Machine()
    for step in (200.0, -250.0):
        machine.wall += step
        assert machine.clock.time() == machine.clock.past() == machine.wall


def test_a_jump_ahead_counts_once_signal_says_the_same() -> None:
    machine = Machine()
    machine.wall += YEAR
    with capture_logs() as logged:
        assert machine.clock.time() == machine.clock.past() == TODAY
        machine.pass_by(60.0)
        assert machine.clock.time() == TODAY + 60
        assert not machine.clock.heard(machine.wall - 2)
        assert machine.clock.time() == machine.clock.past() == machine.wall
    assert [(one["event"], one["seconds"]) for one in logged] == [
        ("clock.jumped", YEAR),
        ("clock.trusted_again", YEAR),
    ]


def test_a_jump_ahead_that_signal_contradicts_never_counts() -> None:
    machine = Machine()
    machine.wall += YEAR
    machine.clock.heard(TODAY)
    machine.pass_by(2 * DOUBT_SECONDS)
    assert machine.clock.time() == machine.clock.past() == TODAY + 2 * DOUBT_SECONDS
    machine.wall -= YEAR
    assert machine.clock.time() == machine.wall


def test_a_jump_ahead_that_nobody_contradicts_counts_after_a_day() -> None:
    machine = Machine()
    machine.wall += YEAR
    assert machine.clock.time() == TODAY
    machine.pass_by(DOUBT_SECONDS - 1)
    assert machine.clock.past() < TODAY + DAY
    machine.pass_by(1)
    assert machine.clock.past() == TODAY + YEAR + DAY


def test_another_jump_is_in_doubt_for_a_day_of_its_own() -> None:
    machine = Machine()
    machine.wall += YEAR
    assert machine.clock.time() == TODAY
    machine.pass_by(0.9 * DOUBT_SECONDS)
    machine.wall += YEAR
    assert machine.clock.time() == TODAY + 0.9 * DOUBT_SECONDS
    machine.pass_by(0.9 * DOUBT_SECONDS)
    assert machine.clock.time() == TODAY + 1.8 * DOUBT_SECONDS
    machine.pass_by(0.2 * DOUBT_SECONDS)
    assert machine.clock.time() == machine.wall


def test_a_jump_back_is_not_followed_and_nothing_is_certain_until_signal_says_the_time() -> None:
    machine = Machine()
    machine.wall -= YEAR
    assert machine.clock.time() == TODAY
    assert machine.clock.past() == TODAY - YEAR
    assert not machine.clock.heard(TODAY + 1)
    assert machine.clock.past() == machine.clock.time() == TODAY


def test_a_jump_back_keeps_nothing_for_longer_than_a_day() -> None:
    machine = Machine()
    machine.wall -= YEAR
    assert machine.clock.past() < TODAY
    machine.pass_by(DOUBT_SECONDS)
    assert machine.clock.past() == TODAY + DOUBT_SECONDS


def test_a_clock_that_began_ahead_goes_back_when_two_others_say_so() -> None:
    machine = Machine(TODAY + YEAR)
    machine.wall -= YEAR
    assert machine.clock.past() == TODAY
    assert machine.clock.heard(TODAY - 5)
    assert machine.clock.time() == machine.clock.past() == TODAY


def test_an_old_message_moves_no_clock() -> None:
    machine = Machine()
    machine.clock.heard(TODAY - 10 * DAY)
    assert machine.clock.time() == TODAY
    machine.wall += YEAR
    machine.clock.heard(TODAY - 10 * DAY)
    assert machine.clock.time() == TODAY


def test_an_old_message_moves_no_clock_that_is_in_doubt_either() -> None:
    machine = Machine()
    machine.wall -= YEAR
    assert machine.clock.time() == TODAY
    assert not machine.clock.heard(TODAY - 100 * DAY)
    assert machine.clock.time() == TODAY


def test_a_start_is_not_before_the_newest_message() -> None:
    machine = Machine(TODAY - YEAR)
    machine.clock.start_from(TODAY)
    machine.pass_by(5)
    assert machine.clock.time() == TODAY + 5
    assert machine.clock.past() == TODAY - YEAR + 5
    assert not machine.clock.heard(TODAY + DAY)
    assert machine.clock.past() >= TODAY + 5


def test_a_start_after_a_usual_pause_believes_the_machine() -> None:
    machine = Machine()
    machine.clock.start_from(TODAY - MAX_PAUSE_SECONDS)
    assert machine.clock.past() == TODAY


def test_a_start_after_years_waits_for_a_message() -> None:
    machine = Machine(TODAY + 10 * YEAR)
    machine.clock.start_from(TODAY - DAY)
    assert machine.clock.past() == TODAY - DAY
    machine.clock.heard(TODAY)
    assert machine.clock.past() == TODAY


def test_a_start_after_a_long_pause_goes_on_with_the_first_message() -> None:
    machine = Machine()
    machine.clock.start_from(TODAY - YEAR)
    machine.clock.heard(TODAY - 1)
    assert machine.clock.past() == TODAY


def test_a_store_from_the_future_deletes_nothing_at_the_start() -> None:
    machine = Machine()
    machine.clock.start_from(TODAY + 10 * YEAR)
    assert machine.clock.past() == TODAY
    assert machine.clock.heard(TODAY)
    assert machine.clock.past() == machine.clock.time() == TODAY
