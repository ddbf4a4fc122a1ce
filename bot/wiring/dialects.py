"""Which API a model's endpoint speaks; only those that are spoken are loaded."""

# ruff: noqa: PLC0415 - a dialect that nobody speaks takes no memory

from bot.config.llm import LlmSettings
from bot.llm.dialect import Dialect
from bot.llm.dialects.openai.dialect import OpenAi
from bot.llm.endpoint import Endpoint


def dialect_of(llm: LlmSettings, endpoint: Endpoint) -> Dialect:
    """Return what speaks with a model's endpoint."""
    match llm.dialect:
        case "openai":
            return OpenAi(endpoint)
        case "anthropic":
            from bot.llm.dialects.anthropic.dialect import Anthropic

            return Anthropic(endpoint)
        case "bedrock":
            return _bedrock(llm, endpoint)
        case "gemini":
            from bot.llm.dialects.gemini.dialect import Gemini

            return Gemini(endpoint)
        case "ollama":
            from bot.llm.dialects.ollama.dialect import Ollama

            return Ollama(endpoint, context_tokens=llm.context_tokens)


def _bedrock(llm: LlmSettings, endpoint: Endpoint) -> Dialect:
    from bot.llm.dialects.bedrock.dialect import Bedrock
    from bot.llm.dialects.bedrock.signing import Credentials

    if llm.region is None or llm.access_key_id is None or llm.secret_access_key is None:
        return Bedrock(endpoint)  # with a bearer key, as the settings have made sure
    credentials = Credentials(
        region=llm.region,
        access_key_id=llm.access_key_id.get_secret_value(),
        secret_access_key=llm.secret_access_key.get_secret_value(),
        session_token=llm.session_token.get_secret_value() if llm.session_token else None,
    )
    return Bedrock(endpoint, credentials)
