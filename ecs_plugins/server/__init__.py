"""The engines for other software: a rerank endpoint over HTTP, and tools over MCP.

Neither is imported by anything else of the package; both need the extra ``serve``.
"""
