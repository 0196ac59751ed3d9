from .base import Ranker as Ranker
from .base import Ranking as Ranking
from .cross_encoder import CrossEncoderRanker as CrossEncoderRanker
from .dense import ConvexRanker as ConvexRanker
