"""`EntropicMemory` corrected: changing and erasing what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ecs_plugins.memory.facade.opened import Opened, bridged
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.namespaces import checked
from ecs_plugins.memory.records import ErasureReceipt


class Changing(Opened):
    """Changes and erases."""

    def update(
        self,
        item_id: str,
        *,
        text: str | None = None,
        metadata: Mapping[str, object] | None = None,
        pinned: bool | None = None,
    ) -> None:
        """Change a message, and with it what rests on it, or a memory.

        Args:
            item_id: Of a message or a memory.
            text: Its new text; the old one is erased.
            metadata: Its new metadata.
            pinned: Whether anything may displace it. Pinning a message moves the hot item that
                it stands in to the cold tier.

        Raises:
            InvalidInputError: Nothing of this id is stored, or there is no room to pin.
        """
        self._editing.update(item_id, text=text, metadata=metadata, pinned=pinned)

    def delete(self, item_id: str, *, evidence: bool = False) -> ErasureReceipt:
        """Erase a message and what rests on it alone, or a memory.

        Args:
            item_id: Of a message, or of a memory.
            evidence: For a memory: erase the messages behind it as well.

        Raises:
            InvalidInputError: Nothing of this id is stored.
        """
        return self._editing.delete(item_id, evidence=evidence)

    def forget(
        self,
        namespace: Sequence[str],
        *,
        filter: Filter | None = None,
        below: bool = False,
    ) -> ErasureReceipt:
        """Erase a namespace with everything in it, or the messages in it that a filter matches.

        Everything includes the key-value items of that namespace; a filter is for messages alone.

        Args:
            namespace: Where; matched whole, label by label.
            filter: Erase only the messages with such metadata, and what rests on them alone.
            below: The namespaces below it too.
        """
        condition = None if filter is None else checked_filter(filter)
        return self._editing.forget(checked(namespace), condition, below=below)

    def purge(self) -> ErasureReceipt:
        """Erase what has expired and end the log's retention; a sleep phase does it too."""
        return self._editing.purge()

    aupdate = bridged(update)
    adelete = bridged(delete)
    aforget = bridged(forget)
    apurge = bridged(purge)
