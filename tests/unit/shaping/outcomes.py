"""What tests read off a shaped context."""


def kept(shaped):
    """Indices of what stays, in the order of the input."""
    return indices(shaped.kept)


def accepted(shaped):
    """Indices of what stays, in the order of acceptance."""
    return indices(shaped.accepted)


def indices(verdicts_on_passages):
    """Indices of some passages."""
    return [verdict.index for verdict in verdicts_on_passages]


def verdicts(shaped):
    """What is said of every passage, as texts."""
    return [str(verdict.verdict) for verdict in shaped.verdicts]


def scores(shaped):
    """What every passage is ordered by."""
    return [verdict.score for verdict in shaped.verdicts]


def probabilities(shaped):
    """That each passage helps."""
    return [verdict.probability for verdict in shaped.verdicts]


def scored(shaped):
    """The verdicts on passages that were scored."""
    return [verdict for verdict in shaped.verdicts if verdict.score is not None]


def reasons(shaped):
    """Why each passage has its verdict."""
    return [verdict.reason for verdict in shaped.verdicts]
