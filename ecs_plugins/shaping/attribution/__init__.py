"""Citations and checks of answers: where each statement comes from, and whether that holds.

`statements` cuts the answer, `wording` and `values` read words and numbers, `citing` finds the
sentences, `checking` compares, `judging` asks a user's model, `attributing` joins them.
"""
