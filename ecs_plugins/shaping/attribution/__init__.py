"""What each passage did to an answer: citations, support, and what is not supported.

`statements` cuts the answer, `wording` compares words, `attributing` asks the model, `fits` joins
both, `result` is what comes back, `answers` puts them together.
"""
