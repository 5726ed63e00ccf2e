"""Review: one self-contained HTML page on which a result can be looked at and judged."""

from usdehaze.review.page import build_review, default_page_path, write_page

__all__ = ["build_review", "default_page_path", "write_page"]
