from .store import EntropicStore as EntropicStore
