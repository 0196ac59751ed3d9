from . import errors as errors
from .errors import EcsPluginsError as EcsPluginsError
from .frontier.calibration import calibrate as calibrate
from .frontier.cost import StrategyPoint as StrategyPoint
from .frontier.decision import RouterConfig as RouterConfig
from .frontier.envelope import EfficiencyFrontier as EfficiencyFrontier
from .frontier.prices import PriceVector as PriceVector
from .frontier.reuse import ReuseLedger as ReuseLedger
from .frontier.routing import Router as Router
from .lm.base import LanguageModel as LanguageModel
from .lm.fake import FakeLanguageModel as FakeLanguageModel
from .lm.local import LocalLM as LocalLM
from .lm.prompts import PromptTemplate as PromptTemplate
from .lm.remote.remote_lm import RemoteLM as RemoteLM
from .memory.config import MemoryConfig as MemoryConfig
from .memory.entropic import EntropicMemory as EntropicMemory
from .ranking.embedder import Embedder as Embedder
from .ranking.embedder import FakeEmbedder as FakeEmbedder
from .ranking.embedder import SentenceTransformerEmbedder as SentenceTransformerEmbedder
from .shaping.config import ShapingConfig as ShapingConfig
from .shaping.result import ShapedContext as ShapedContext
from .shaping.shaper import ContextShaper as ContextShaper
from .tokens import TokenLedger as TokenLedger

__version__: str
