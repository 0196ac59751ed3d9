"""A Runnable of one answer to one input, in LangChain's ways to call it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from typing_extensions import override


class AnsweringRunnable(RunnableSerializable[Any, Any]):
    """Base class that runs subclasses as traced Runnables. Subclasses implement `invoke`."""

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """`invoke` off the event loop."""
        return await self._acall_with_config(self._ainvoke, input, config, **kwargs)

    @override
    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """`invoke`, chunk by chunk."""
        yield from self._transform_stream_with_config(iter([input]), self._stream, config, **kwargs)

    @override
    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` off the event loop."""

        async def inputs() -> AsyncIterator[Any]:
            yield input

        chunks = self._atransform_stream_with_config(inputs(), self._astream, config, **kwargs)
        # LangChain leaves it open when the stream is closed early.
        async with aclosing(cast("AsyncGenerator[Any]", chunks)):
            async for chunk in chunks:
                yield chunk

    @abstractmethod
    async def _ainvoke(
        self,
        input: Any,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Any:
        """Answer within a traced run."""

    @abstractmethod
    def _stream(
        self,
        inputs: Iterator[Any],
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Answer the first input in chunks."""

    @abstractmethod
    def _astream(
        self,
        inputs: AsyncIterator[Any],
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Answer the first input in chunks, off the event loop."""
