"""Models shared in a process: each is loaded once for all objects that use it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ecs_plugins.lm.loading import LoadingOptions, load

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Runtime:
    """A loaded model and tokenizer with their engine, worker and generator.

    Args:
        model: The loaded model.
        tokenizer: Its tokenizer.
        name: Name for error messages.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str
    ) -> None:
        from ecs_plugins.lm.encoding import encoder_of
        from ecs_plugins.lm.generation import Generator
        from ecs_plugins.lm.prompts import chat_layout
        from ecs_plugins.lm.scoring.planner import ScoringEngine
        from ecs_plugins.lm.scoring.profile import profile_of
        from ecs_plugins.lm.scoring.runner import Runner
        from ecs_plugins.lm.worker import Worker

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
            # `forget` replaces the cache. This object is not used here: a circle would keep a
            # closed model until the collector comes.
            release=lambda: engine.cache.release(),
        )


_SHARED: WeakValueDictionary[tuple[str, LoadingOptions], Runtime] = WeakValueDictionary()
_LOADING = threading.Lock()


def shared_runtime(
    name_or_path: str, options: LoadingOptions, *, show_progress: bool = False
) -> Runtime:
    """Return the one runtime of this process for a name and its options, loaded on first use.

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
    """Return the runtime of `shared_runtime` if it is loaded."""
    return _SHARED.get((name_or_path, options))
