"""How a routed run is run: whole or streamed, in or off an event loop, with a fallback.

What is run is decided elsewhere, by `FrontierRouter`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from typing_extensions import override

from ecs_plugins.langchain._run import RoutedRun, last_chunk, with_report


class RoutedRunnable(RunnableSerializable[Any, Any]):
    """Starts a run, runs its chain or the fallback, and settles it."""

    fallback: Any = None

    @abstractmethod
    def _start(
        self, input: Any, run_manager: CallbackManagerForChainRun, config: RunnableConfig
    ) -> RoutedRun:
        """Decide what runs."""

    @abstractmethod
    async def _astart(
        self, input: Any, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig
    ) -> RoutedRun:
        """`_start` off the event loop."""

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Route, run, settle.

        Raises:
            InvalidInputError: A setting is out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
            ConfigurationError: No chain runs what was chosen, or no objective is given.
            StorageError: The artefact or the ledger cannot be read.
        """
        return self._call_with_config(self._invoke, input, config, **kwargs)

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """`invoke` off the event loop."""
        return await self._acall_with_config(self._ainvoke, input, config, **kwargs)

    @override
    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """`invoke`, chunk by chunk; where chunks are messages, the last carries the numbers."""
        yield from self._transform_stream_with_config(iter([input]), self._stream, config, **kwargs)

    @override
    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` off the event loop."""

        async def inputs() -> AsyncIterator[Any]:
            yield input

        async for chunk in self._atransform_stream_with_config(
            inputs(), self._astream, config, **kwargs
        ):
            yield chunk

    def _invoke(
        self,
        input: Any,
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Any:
        run = self._start(input, run_manager, config)
        try:
            output = run.chain.invoke(run.input, run.child(run_manager, config), **kwargs)
        except Exception as error:
            run.fail(error, run_manager, final=self.fallback is None)
            output = self.fallback.invoke(run.input, run.child(run_manager, config), **kwargs)
        return with_report(output, run.finish(run_manager))

    async def _ainvoke(
        self,
        input: Any,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Any:
        run = await self._astart(input, run_manager, config)
        try:
            output = await run.chain.ainvoke(run.input, run.child(run_manager, config), **kwargs)
        except Exception as error:
            await run.afail(error, run_manager, final=self.fallback is None)
            child = run.child(run_manager, config)
            output = await self.fallback.ainvoke(run.input, child, **kwargs)
        return with_report(output, await run.afinish(run_manager))

    def _stream(
        self,
        inputs: Iterator[Any],
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Iterator[Any]:
        run = self._start(next(inputs), run_manager, config)
        last: Any = None
        begun = False
        try:
            for chunk in run.chain.stream(run.input, run.child(run_manager, config), **kwargs):
                begun, last = True, chunk
                yield chunk
        except Exception as error:
            run.fail(error, run_manager, final=self.fallback is None or begun)
            child = run.child(run_manager, config)
            for chunk in self.fallback.stream(run.input, child, **kwargs):
                last = chunk
                yield chunk
        report = run.finish(run_manager)
        if isinstance(last, AIMessageChunk):
            yield last_chunk(last, report)

    async def _astream(
        self,
        inputs: AsyncIterator[Any],
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        run = await self._astart(await anext(inputs), run_manager, config)
        last: Any = None
        begun = False
        try:
            child = run.child(run_manager, config)
            async for chunk in run.chain.astream(run.input, child, **kwargs):
                begun, last = True, chunk
                yield chunk
        except Exception as error:
            await run.afail(error, run_manager, final=self.fallback is None or begun)
            child = run.child(run_manager, config)
            async for chunk in self.fallback.astream(run.input, child, **kwargs):
                last = chunk
                yield chunk
        report = await run.afinish(run_manager)
        if isinstance(last, AIMessageChunk):
            yield last_chunk(last, report)
