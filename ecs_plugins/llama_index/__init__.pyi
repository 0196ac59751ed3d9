from .memory import EntropicChatMemory as EntropicChatMemory
from .memory import EntropicMemoryBlock as EntropicMemoryBlock
from .postprocessor import ECSPostprocessor as ECSPostprocessor
from .query_engine import FrontierQueryEngine as FrontierQueryEngine
from .selector import FrontierQuery as FrontierQuery
from .selector import FrontierSelector as FrontierSelector
