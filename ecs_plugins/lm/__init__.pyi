from .base import LanguageModel as LanguageModel
from .base import ScoreRequest as ScoreRequest
from .fake import FakeLanguageModel as FakeLanguageModel
from .local import LocalLM as LocalLM
from .prompts import PromptTemplate as PromptTemplate
from .remote.remote_lm import RemoteLM as RemoteLM
