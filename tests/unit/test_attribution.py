"""Which messages must be among those that phones confirmed; held against trying everything."""

import time
from itertools import permutations
from random import Random

from bot.dispatch.outgoing.attribution import Candidate, proven

ADA = frozenset({"ada"})
BOB = frozenset({"bob"})
TEAM = ADA | BOB
ALWAYS = 1_000
A_SECOND = 1.0


def test_the_only_message_that_can_have_a_timestamp_was_sent() -> None:
    assert proven([Candidate(ADA, 5, ALWAYS)], {7: {"ada"}}) == {0: 7}


def test_what_was_confirmed_before_a_message_existed_proves_nothing() -> None:
    assert proven([Candidate(ADA, 5, ALWAYS)], {4: {"ada"}}) == {}


def test_what_was_sent_by_this_process_proves_nothing() -> None:
    assert proven([Candidate(ADA, 5, 7)], {7: {"ada"}}) == {}


def test_a_timestamp_that_may_belong_to_either_of_two_messages_proves_neither() -> None:
    assert proven([Candidate(ADA, 5, ALWAYS)] * 2, {7: {"ada"}}) == {}


def test_two_timestamps_prove_two_messages_the_earlier_the_first() -> None:
    messages = [Candidate(ADA, 5, ALWAYS), Candidate(ADA, 6, ALWAYS)]
    assert proven(messages, {9: {"ada"}, 8: {"ada"}}) == {0: 8, 1: 9}


def test_what_two_people_confirm_is_no_private_message() -> None:
    messages = [Candidate(ADA, 5, ALWAYS), Candidate(TEAM, 5, ALWAYS)]
    assert proven(messages, {7: {"ada", "bob"}}) == {1: 7}


def test_a_message_to_a_group_explains_what_several_members_confirm_and_no_more() -> None:
    messages = [Candidate(ADA, 5, ALWAYS), Candidate(TEAM, 5, ALWAYS)]
    assert proven(messages, {7: {"ada", "bob"}, 8: {"ada"}}) == {1: 7, 0: 8}


def test_a_message_to_unknown_people_may_be_anybodys() -> None:
    messages = [Candidate(ADA, 5, ALWAYS), Candidate(None, 5, ALWAYS)]
    assert proven(messages, {7: {"ada"}}) == {}


def test_of_several_timestamps_a_message_gets_one_that_can_be_no_others() -> None:
    messages = [Candidate(ADA, 5, ALWAYS), Candidate(ADA, 8, ALWAYS)]
    assert proven(messages, {7: {"ada"}, 9: {"ada"}, 10: {"ada"}})[0] == 7


def test_thousands_of_chats_take_no_time() -> None:
    people = [frozenset({str(number)}) for number in range(5_000)]
    messages = [Candidate(person, 5, 100_000) for person in people]
    confirmed = {number + 5: {*person} for number, person in enumerate(people)}
    began = time.process_time()
    assert len(proven(messages, confirmed)) == len(people)
    assert time.process_time() - began < A_SECOND


def test_a_message_that_may_have_been_sent_twice_explains_two_timestamps() -> None:
    messages = [Candidate(ADA, 5, ALWAYS), Candidate(TEAM, 5, ALWAYS, times=2)]
    assert proven(messages, {7: {"ada"}, 8: {"ada"}}).keys() == {1}
    assert proven(messages, {7: {"ada"}, 8: {"ada"}, 9: {"ada"}}).keys() == {0, 1}


def test_a_flood_of_claims_takes_no_time() -> None:
    members = frozenset(map(str, range(20)))
    turns = [Candidate(members, 5, 1_000_000, times=12) for _ in range(5)]
    claims = {number + 5: {str(number % 20)} for number in range(20 * 200)}
    began = time.process_time()
    assert proven([Candidate(members, 5, 1_000_000)], claims, turns).keys() == {0}
    assert time.process_time() - began < A_SECOND / 2


def test_a_message_counts_as_sent_only_where_nothing_else_explains_the_receipts() -> None:
    random = Random(1)
    some = 0
    for _ in range(300):
        messages = [
            Candidate(
                random.choice((ADA, BOB, TEAM, None)),
                random.randrange(5),
                ALWAYS,
                times=random.choice((1, 1, 2, 3)),
            )
            for _ in range(random.randrange(1, 5))
        ]
        confirmed = {
            timestamp: {*random.choice((ADA, BOB, TEAM))}
            for timestamp in random.sample(range(8), random.randrange(1, 5))
        }
        wanted = random.randrange(1, len(messages) + 1)
        found = proven(messages[:wanted], confirmed, messages[wanted:])
        most = _explained(messages, confirmed)
        necessary = {
            number
            for number in range(wanted)
            if _explained([*messages[:number], *messages[number + 1 :]], confirmed) < most
        }
        assert found.keys() == necessary
        assert len(set(found.values())) == len(found)
        assert all(messages[n].may_be(at, confirmed[at]) for n, at in found.items())
        some += bool(found)
    assert some > 30


def _explained(messages: list[Candidate], confirmed: dict[int, set[str]]) -> int:
    """How many timestamps can be explained at the same time, found by trying every order."""
    each = [message for message in messages for _ in range(message.times)]
    slots = [*each, *[None] * len(confirmed)]
    return max(
        sum(
            message is not None and message.may_be(timestamp, people)
            for message, (timestamp, people) in zip(order, confirmed.items(), strict=False)
        )
        for order in permutations(slots, len(confirmed))
    )
