"""Running the sleep phases that fall due, and surviving those that fail."""

from __future__ import annotations

import logging

from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import SleepReport
from ecs_plugins.memory.store.core import Core
from ecs_plugins.memory.store.editing import Editing
from ecs_plugins.memory.store.sleeping import Sleeping
from ecs_plugins.memory.summaries import Summariser

logger = logging.getLogger(__name__)


class Running:
    """Runs sleep phases, one per namespace at a time.

    Args:
        core: The open memory.
        editing: Purges what has expired first.
    """

    def __init__(self, core: Core, editing: Editing) -> None:
        self._core = core
        self._editing = editing
        self._retry_at: dict[Namespace, int] = {}

    def sleep(self, namespace: Namespace) -> SleepReport | None:
        """Run one sleep phase now."""
        core = self._core
        with core.sleeping.hold(namespace):
            core.flush(namespace)
            if core.wants_purge():
                self._editing.purge()
            return Sleeping(
                core.database,
                config=core.config,
                dimension=core.dimension,
                utility=core.utility,
                known=core.known,
            ).run(namespace, self._summariser())

    def fall_asleep(self, namespace: Namespace, since_sleep: int) -> None:
        """Run a sleep phase that is due, here or in the background; a failure is logged.

        What was added is on disk, so ``add`` does not fail when sleeping does; after a failure
        the namespace is left alone for another ``sleep_every`` messages.
        """
        core = self._core
        if since_sleep < self._retry_at.get(namespace, 0):
            return
        if core.store.sleep == "background":
            core.upkeep.submit(
                f"sleep in {namespace}", lambda _: self._try_sleep(namespace, since_sleep)
            )
        elif not core.sleeping.is_held(namespace):
            self._try_sleep(namespace, since_sleep)

    def _try_sleep(self, namespace: Namespace, since_sleep: int) -> None:
        try:
            self.sleep(namespace)
            self._retry_at.pop(namespace, None)
        except EcsPluginsError as error:
            self._retry_at[namespace] = since_sleep + self._core.config.sleep_every
            logger.warning(
                "a sleep phase in %s failed; nothing has changed, it will be tried again: %s",
                namespace,
                error,
            )

    def _summariser(self) -> Summariser | None:
        core = self._core
        if core.config.proposal != "summary" or core.model is None:
            return None
        return Summariser(
            core.model,
            embed=lambda text: core.embed([text])[0],
            seed=core.config.seed,
            deadline=core.store.summary_deadline,
            fallback=core.store.on_summary_error == "extractive",
        )
