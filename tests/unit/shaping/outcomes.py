"""Helpers to read shaped contexts in tests."""


def kept(shaped):
    """Return kept indices in input order."""
    return indices(shaped.kept)


def accepted(shaped):
    """Return kept indices in order of acceptance."""
    return indices(shaped.accepted)


def indices(verdicts_on_passages):
    """Indices of some passages."""
    return [verdict.index for verdict in verdicts_on_passages]


def verdicts(shaped):
    """Return the verdict of every passage as text."""
    return [str(verdict.verdict) for verdict in shaped.verdicts]


def scores(shaped):
    """Return the order value of every passage."""
    return [verdict.score for verdict in shaped.verdicts]


def probabilities(shaped):
    """Return the probability of each passage."""
    return [verdict.probability for verdict in shaped.verdicts]


def scored(shaped):
    """The verdicts on passages that were scored."""
    return [verdict for verdict in shaped.verdicts if verdict.score is not None]


def reasons(shaped):
    """Why each passage has its verdict."""
    return [verdict.reason for verdict in shaped.verdicts]
