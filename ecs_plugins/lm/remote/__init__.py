"""A language model on SGLang or vLLM servers: `ecs_plugins.lm.RemoteLM`."""
