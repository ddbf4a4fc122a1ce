"""Values that the store keeps and the bot works with. Times are ms since 1970 in UTC."""

# Lists each name once: sorting would write one statement for each.
# ruff: noqa: I001

from conversation_store.models.kept import (
    Fact as Fact,
    FurtherDate as FurtherDate,
    Instructions as Instructions,
    NewReminder as NewReminder,
    NotRemembered as NotRemembered,
    PairedPerson as PairedPerson,
    PairingRequest as PairingRequest,
    Restored as Restored,
    StoredReminder as StoredReminder,
    StoreSizes as StoreSizes,
    UnfinishedWork as UnfinishedWork,
)
from conversation_store.models.outgoing import (
    MAX_ATTACHMENT_BYTES as MAX_ATTACHMENT_BYTES,
    Attachment as Attachment,
    Doubt as Doubt,
    OutgoingMessage as OutgoingMessage,
    Quote as Quote,
    StyledText as StyledText,
    StyleRange as StyleRange,
    TextStyle as TextStyle,
)
from conversation_store.models.received import (
    AcceptedMessage as AcceptedMessage,
    ChatId as ChatId,
    EditOutcome as EditOutcome,
    Expired as Expired,
    Forgotten as Forgotten,
    Missed as Missed,
    OverheardMessage as OverheardMessage,
    ReceivedFile as ReceivedFile,
    ReceivedKind as ReceivedKind,
    ReceivedMessage as ReceivedMessage,
    ReceivedQuote as ReceivedQuote,
    WorkspaceFile as WorkspaceFile,
)
from conversation_store.models.turns import (
    AuditEntry as AuditEntry,
    EndedCalls as EndedCalls,
    ExchangeState as ExchangeState,
    History as History,
    Image as Image,
    Message as Message,
    ModelState as ModelState,
    NewExchange as NewExchange,
    OpenPoll as OpenPoll,
    Question as Question,
    QuestionKind as QuestionKind,
    QuestionTerms as QuestionTerms,
    Retry as Retry,
    Role as Role,
    StoredExchange as StoredExchange,
    StoredGrant as StoredGrant,
    StoredHelper as StoredHelper,
    StoredQuestion as StoredQuestion,
    TokenSpend as TokenSpend,
    TokenSum as TokenSum,
    ToolCall as ToolCall,
    StoredTurn as StoredTurn,
    TurnEnd as TurnEnd,
    TurnStatus as TurnStatus,
)
