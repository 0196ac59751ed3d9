from .base import Ranker as Ranker
from .base import Ranking as Ranking
from .dense import HybridRanker as HybridRanker
from .dense import reciprocal_rank_fusion as reciprocal_rank_fusion
from .registry import RANKERS as RANKERS
from .registry import make_ranker as make_ranker
