"""Tools of MCP servers (https://modelcontextprotocol.io), through the official SDK."""
