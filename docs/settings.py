"""The page of every setting, made from the classes that have them and their docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

GROUPS = {
    "Context shaping": ("ecs_plugins.ShapingConfig",),
    "Memory": (
        "ecs_plugins.MemoryConfig",
        "ecs_plugins.memory.StoreConfig",
        "ecs_plugins.memory.EntropicMemory.open",
        "ecs_plugins.memory.EntropicMemory.recall",
    ),
    "Frontier": (
        "ecs_plugins.RouterConfig",
        "ecs_plugins.PriceVector",
        "ecs_plugins.frontier.prices.ModelPrice",
        "ecs_plugins.ReuseLedger",
    ),
    "Models": ("ecs_plugins.lm.local.LocalLMOptions", "ecs_plugins.RemoteLM"),
    "LangChain and LangGraph": (
        "ecs_plugins.langchain.ECSDocumentCompressor",
        "ecs_plugins.langchain.ECSContextMiddleware",
        "ecs_plugins.langchain.ECSCitations",
        "ecs_plugins.langchain.EntropicMemoryMiddleware",
        "ecs_plugins.langchain.EntropicMemoryRetriever",
        "ecs_plugins.integrations.recall.RecallOptions",
        "ecs_plugins.langchain.EntropicChatMessageHistory",
        "ecs_plugins.langchain.FrontierRouter",
        "ecs_plugins.langchain.RoutedChain",
        "ecs_plugins.langgraph.EntropicStore",
    ),
    "LlamaIndex": (
        "ecs_plugins.llama_index.ECSPostprocessor",
        "ecs_plugins.llama_index.EntropicMemoryBlock",
        "ecs_plugins.llama_index.EntropicChatMemory",
        "ecs_plugins.llama_index.FrontierSelector",
        "ecs_plugins.llama_index.FrontierQueryEngine",
        "ecs_plugins.llama_index.RoutedChain",
    ),
}
"""Heading -> what has settings: a class of fields, a class by its constructor, or a method."""
THEIRS = "As in the framework."
"""Of a field that an adapter has from its framework."""
ENTRY = re.compile(r"^    (\w+)(?: \([^)]*\))?: (.*(?:\n(?:     .*|))*)", re.MULTILINE)
SECTION = re.compile(r"^(?:Attributes|Args):\n((?:    .*\n|\n)+)", re.MULTILINE)

Setting = tuple[str, str, str]
"""Name, default and meaning."""


def found(path: str) -> Any:
    """What stands at a dotted path."""
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            thing = getattr(thing, name)
        return thing
    raise LookupError(path)


def meanings(thing: Any) -> dict[str, str]:
    """What the docstrings of a class, its bases and its constructor say of each name."""
    sources = list(reversed(thing.__mro__)) if inspect.isclass(thing) else [thing]
    texts = [inspect.getdoc(each) for each in sources]
    texts += [inspect.getdoc(each.__init__) for each in sources if inspect.isclass(each)]
    told: dict[str, str] = {}
    for text in filter(None, texts):
        for section in SECTION.finditer(f"{text}\n"):
            for name, meaning in ENTRY.findall(section[1]):
                told[name] = " ".join(meaning.split())
    return told


def fields_of(thing: Any) -> Iterator[Setting]:
    """Settings with their defaults, as they are written; the meaning where the field has it."""
    if hasattr(thing, "model_fields"):
        for name, field in thing.model_fields.items():
            default: object = inspect.Parameter.empty
            if not field.is_required():
                default = field.get_default(call_default_factory=True, validated_data={})
            yield name, shown(default), field.description or ""
    elif dataclasses.is_dataclass(thing):
        for each in dataclasses.fields(thing):
            if each.init:
                yield each.name, shown(default_of(each)), ""
    else:
        for name, parameter in inspect.signature(thing).parameters.items():
            plain = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            if plain and name != "self":
                yield name, shown(parameter.default), ""


def default_of(field: dataclasses.Field[Any]) -> object:
    """A field's default; the empty parameter where it has to be given."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty


def shown(default: object) -> str:
    """A default as it is written."""
    if default is inspect.Parameter.empty:
        return "required"
    if default is None or isinstance(default, (str, bool, int, float, tuple)):
        return f"`{default!r}`"
    return f"`{type(default).__name__}()`"


def settings(path: str) -> list[Setting]:
    """Every setting of a class or a method."""
    thing = found(path)
    told = meanings(thing)
    rows: list[Setting] = []
    for name, default, described in fields_of(thing):
        meaning = told.get(name) or described or THEIRS
        rows.append((name, default, " ".join(meaning.split())))
    return rows


def page() -> str:
    """The page, in Markdown."""
    parts = ["# Every setting", "Fields and their defaults as they ship; made from the code."]
    for heading, paths in GROUPS.items():
        parts.append(f"## {heading}")
        for path in paths:
            parts.append(f"### {title(path)}")
            parts.append(listed(settings(path)))
    return "\n\n".join(parts) + "\n"


def title(path: str) -> str:
    """The name of a class, or of a class and its method."""
    *_, holder, name = path.split(".")
    return name if name[0].isupper() else f"{holder}.{name}"


def listed(rows: list[Setting]) -> str:
    """A list in Markdown, which a narrow window shows as well; code in single backticks."""
    lines: list[str] = []
    for name, default, meaning in rows:
        plain = meaning.replace("``", "`")
        lines.append(f"* **`{name}`** ({default}): {plain}")
    return "\n".join(lines)
