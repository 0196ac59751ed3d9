"""ECS context shaping as a LlamaIndex node postprocessor.

A translation only: `NodeWithScore` in, `NodeWithScore` out, with rerank events;
`ecs_plugins.shaping` decides.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from pydantic import ConfigDict, Field
from typing_extensions import override

from ecs_plugins.common.aio import bridged
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.fields import (
    METADATA_KEY,
    ShapingFields,
    as_score,
    titles_of,
    verdict_metadata,
)
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext
from ecs_plugins.shaping.spans import by_handle, gaps, join_spans

_dispatcher = get_dispatcher(__name__)


class ECSPostprocessor(ShapingFields, BaseNodePostprocessor):
    """Keeps the nodes that help to answer the query, in the order they came in.

    ```python
    engine = index.as_query_engine(node_postprocessors=[ECSPostprocessor(top_k=5)])
    ```

    Kept nodes are copies with the same ids; their score is the probability that they help, where
    one was fitted to model and signal, else the retriever's. Their metadata gains ``ecs``, the
    verdict with its numbers, hidden from models. With ``prune=True``
    the text of a `TextNode` is what helps of it. When the model cannot
    score, all come back with the verdict ``unscored``, the error and the retriever's score, unless
    ``config.on_error`` is ``"raise"``.

    The fields are those of `ShapingFields`, and ``metadata_mode``.
    """

    model_config = ConfigDict(protected_namespaces=())

    metadata_mode: MetadataMode = Field(
        default=MetadataMode.LLM,
        description="Which text of a node is scored; by default what the answering model reads.",
    )

    @classmethod
    @override
    def class_name(cls) -> str:
        return "ECSPostprocessor"

    @override
    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InvalidInputError(
                "ECSPostprocessor needs the query: pass query_str or query_bundle"
            )
        query = query_bundle.query_str
        if not nodes:
            return []
        top_n = self.config.effective_top_k or len(nodes)
        model_name = self.scoring_model().name
        _dispatcher.event(
            ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=model_name)
        )
        texts = [node.node.get_content(metadata_mode=self.metadata_mode) for node in nodes]
        titles = titles_of([node.node.metadata for node in nodes])
        scores = [as_score(node.score) for node in nodes]
        vectors = [node.node.embedding for node in nodes]
        shaped = self.shape_passages(query, texts, titles, scores, vectors)
        kept = [_copy(nodes[verdict.index], verdict, shaped) for verdict in shaped.kept]
        _dispatcher.event(ReRankEndEvent(nodes=kept))
        return kept

    _apostprocess_nodes = bridged(_postprocess_nodes, asks_model=True)

    @override
    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        # A callback manager stays with its process.
        fields = {**state["__dict__"], "callback_manager": CallbackManager()}
        return {**state, "__dict__": fields}


def _copy(
    given: NodeWithScore,
    verdict: PassageVerdict,
    shaped: ShapedContext,
) -> NodeWithScore:
    node = given.node
    retriever_score = as_score(given.score)
    text = node.text if isinstance(node, TextNode) else ""
    spans = verdict.spans_in(text)
    dropped = by_handle(gaps(spans, text)) if spans else {}
    metadata = verdict_metadata(shaped, verdict, node.metadata, retriever_score, dropped)
    changes: dict[str, Any] = {"metadata": metadata, **with_hidden_key(node)}
    if spans:
        pruned = join_spans(spans, text)
        changes |= {"text": pruned, "start_char_idx": None, "end_char_idx": None}
    copy = node.model_copy(update=changes)
    score = retriever_score if verdict.probability is None else verdict.probability
    return NodeWithScore(node=copy, score=score)


def with_hidden_key(node: BaseNode) -> dict[str, list[str]]:
    """Return the fields of a node that hide the metadata of this package from models."""
    return {
        "excluded_llm_metadata_keys": _with_key(node.excluded_llm_metadata_keys),
        "excluded_embed_metadata_keys": _with_key(node.excluded_embed_metadata_keys),
    }


def _with_key(keys: list[str]) -> list[str]:
    others = [key for key in keys if key != METADATA_KEY]
    return [*others, METADATA_KEY]
