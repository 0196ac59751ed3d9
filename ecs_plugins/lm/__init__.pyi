from .base import LanguageModel as LanguageModel
from .base import ScoreRequest as ScoreRequest
from .base import ScoreResult as ScoreResult
from .base import Segment as Segment
from .fake import FakeLanguageModel as FakeLanguageModel
from .local import LocalLM as LocalLM
from .prompts import PromptTemplate as PromptTemplate
from .remote.model import RemoteLM as RemoteLM
