from .chains import RoutedChain as RoutedChain
from .evaluator import ECSSupportEvaluator as ECSSupportEvaluator
from .memory import EntropicChatMemory as EntropicChatMemory
from .memory import EntropicMemoryBlock as EntropicMemoryBlock
from .postprocessor import ECSPostprocessor as ECSPostprocessor
from .router import FrontierQuery as FrontierQuery
from .router import FrontierQueryEngine as FrontierQueryEngine
from .router import FrontierSelector as FrontierSelector
