"""Citations and checks of answers: where each statement comes from, and whether that holds.

`statements` cuts the answer, `wording` and `quantities` read words and numbers, `matching` finds
the sentences, `checking` compares them, `attributing` joins the steps, `attributed` is the result.
"""
