"""A loaded pair with everything that belongs to it, shared by all who asked for the same one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ecs_plugins.lm.encoding import encoder_of
from ecs_plugins.lm.generation import Generator
from ecs_plugins.lm.loading import LoadingOptions, load
from ecs_plugins.lm.prompts import chat_layout
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import profile_of
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.worker import Worker

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Runtime:
    """A model and its tokenizer, ready to score and generate.

    Attributes:
        worker: Through which everything is computed: one forward at a time per loaded model.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.layout = chat_layout(tokenizer)
        self.encoder = encoder_of(tokenizer, self.layout)
        runner = Runner(model, name)
        profile = profile_of(model, runner.takes, int(tokenizer.model_max_length))
        self.window = profile.window
        engine = ScoringEngine(runner, profile)
        self.engine = engine
        self.worker = Worker()
        self.generator = Generator(
            model,
            tokenizer,
            mixed_lengths=profile.pads_on_the_left,
            # The cache is another one after `forget`. Not through this object: a circle would keep
            # a closed model until the collector comes.
            release=lambda: engine.cache.release(),
        )


_SHARED: WeakValueDictionary[tuple[str, LoadingOptions], Runtime] = WeakValueDictionary()
_LOADING = threading.Lock()


def shared_runtime(
    name_or_path: str, options: LoadingOptions, *, show_progress: bool = False
) -> Runtime:
    """The one runtime of this process for a name and a way to load it, loaded on first use.

    It lives as long as somebody holds it.
    """
    with _LOADING:
        runtime = _SHARED.get((name_or_path, options))
        if runtime is None:
            model, tokenizer = load(name_or_path, options, show_progress=show_progress)
            runtime = Runtime(model, tokenizer, name=name_or_path)
            _SHARED[name_or_path, options] = runtime
        return runtime


def loaded_runtime(name_or_path: str, options: LoadingOptions) -> Runtime | None:
    """What `shared_runtime` would return if it need not load it."""
    return _SHARED.get((name_or_path, options))
