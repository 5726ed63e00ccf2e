"""Tuning: the caution (of a rule lambda, kappa), steps and strength that do best on some frames, as a preset."""

from usdehaze.tuning.examples import Example, Goal, find_examples, goal_of
from usdehaze.tuning.search import Tried, Tuned, preset_text, require_optuna, search, tune

__all__ = [
    "Example",
    "Goal",
    "Tried",
    "Tuned",
    "find_examples",
    "goal_of",
    "preset_text",
    "require_optuna",
    "search",
    "tune",
]
