from .attribution.attributed import Attribution as Attribution
from .config import ShapingConfig as ShapingConfig
from .diagnostics import LabelledExample as LabelledExample
from .diagnostics import ModelDiagnostics as ModelDiagnostics
from .result import ShapedContext as ShapedContext
from .result import Verdict as Verdict
from .shaper import ContextShaper as ContextShaper
from .signals.base import Signal as Signal
