"""Reader studies: results before and after, side by side and blinded, for people to judge.

`make_study` writes a page a reader and the key; `score_study` reads what the readers answered.
"""

from usdehaze.study.make import make_study
from usdehaze.study.score import score_study

__all__ = ["make_study", "score_study"]
