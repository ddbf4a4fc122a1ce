"""What asks people, wired: before side effects, and for the model, whose turns wait for answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from bot.approvals.answers import Answers
from bot.approvals.asked import AskedQuestions
from bot.approvals.desk import ApprovalDesk
from bot.approvals.poll_ends import PollEnds
from bot.approvals.questions import QuestionDesk, Render
from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.background.steady_clock import SteadyClock
from bot.dispatch.turns.suspended import SuspendedTurns
from bot.language.languages import Languages
from bot.messaging.events import Person
from bot.messaging.messenger import PollSender
from conversation_store.models import AcceptedMessage
from conversation_store.store import ConversationStore


@dataclass(frozen=True, slots=True)
class Asking:
    """The desks, what is answered at them, and the turns that wait.

    Attributes:
        approvals: asks before side effects.
        questions: asks for the model.
        poll_ends: ends the polls whose question is over.
        answers: finds out what people answer.
        suspended: the turns that wait for people.
        file_cleanup: deletes the files of turns that have disappeared.
    """

    approvals: ApprovalDesk
    questions: QuestionDesk
    poll_ends: PollEnds
    answers: Answers
    suspended: SuspendedTurns
    file_cleanup: FileCleanup

    @classmethod
    def made_of(
        cls,
        *,
        store: ConversationStore,
        channel: PollSender,
        is_admin: Callable[[Person], bool],
        languages: Languages,
        file_cleanup: FileCleanup,
        quorum: int,
        render: Render,
        queue: Callable[[AcceptedMessage], None],
        clock: SteadyClock,
    ) -> Self:
        """Make and connect them.

        Args:
            store: where questions are kept.
            channel: where they are asked.
            is_admin: who may answer for others.
            languages: in which the bot itself speaks.
            file_cleanup: deletes files.
            quorum: how many admins have to allow a dangerous call in a group.
            render: shows plans.
            queue: lets the messages of a turn that waited be answered.
            clock: the time.
        """
        asked = AskedQuestions(channel, is_admin=is_admin, languages=languages, clock=clock.time)
        approvals = ApprovalDesk(
            store=store,
            asked=asked,
            channel=channel,
            is_admin=is_admin,
            languages=languages,
            quorum=quorum,
            clock=clock.time,
        )

        def forget(turn_id: int) -> None:
            questions.forget_turn(turn_id)

        suspended = SuspendedTurns(store, queue=queue, forget=forget)
        poll_ends = PollEnds(store, asked, channel, clock=clock.time)
        questions = QuestionDesk(
            store=store,
            asked=asked,
            languages=languages,
            go_on=suspended.go_on,
            render=render,
            question_over=poll_ends.look,
            clock=clock.time,
            past=clock.past,
        )
        answers = Answers(asked, approvals, questions)
        return cls(approvals, questions, poll_ends, answers, suspended, file_cleanup)

    def disappeared(self, accepted: AcceptedMessage) -> None:
        """Forget a turn that has disappeared while it waited."""
        self.suspended.end(accepted.id)
        self.file_cleanup.files_of(*accepted.messages)
