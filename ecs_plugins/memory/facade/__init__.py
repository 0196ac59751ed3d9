"""The parts of `EntropicMemory`, one for each kind of use; nothing else needs them."""
