"""``make house``: what holds the package's shape, measured from its source.

``source`` counts lines, density and complexity; ``imports`` reads arrows and circles; ``stays``
follows one call of each operation through the files; ``limits`` says what each may be at most.
"""
