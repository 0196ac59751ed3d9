from .config import MemoryConfig as MemoryConfig
from .config import StoreConfig as StoreConfig
from .entropic import EntropicMemory as EntropicMemory
from .outdating import ChatModelJudge as ChatModelJudge
from .records import ErasureReceipt as ErasureReceipt
from .records import Memory as Memory
from .records import SleepReport as SleepReport
