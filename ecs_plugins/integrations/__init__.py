"""Code that the adapters of LangChain, LangGraph and LlamaIndex share."""
