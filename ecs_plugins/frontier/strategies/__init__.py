"""Context strategies: the two stages of each, and the registry that makes them by name."""

from ecs_plugins.frontier.strategies.base import BuiltContext as BuiltContext
from ecs_plugins.frontier.strategies.base import Prepared as Prepared
from ecs_plugins.frontier.strategies.base import Strategy as Strategy
from ecs_plugins.frontier.strategies.catalogue import STRATEGIES as STRATEGIES
from ecs_plugins.frontier.strategies.catalogue import StrategySet as StrategySet
from ecs_plugins.frontier.strategies.catalogue import configurations as configurations
from ecs_plugins.frontier.strategies.catalogue import default_strategies as default_strategies
