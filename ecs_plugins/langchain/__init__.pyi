from .chains import RoutedChain as RoutedChain
from .citations import ECSCitations as ECSCitations
from .compressor import ECSDocumentCompressor as ECSDocumentCompressor
from .context_middleware import ECSContextMiddleware as ECSContextMiddleware
from .history import EntropicChatMessageHistory as EntropicChatMessageHistory
from .memory_middleware import EntropicMemoryMiddleware as EntropicMemoryMiddleware
from .retriever import EntropicMemoryRetriever as EntropicMemoryRetriever
from .router import FrontierRouter as FrontierRouter
