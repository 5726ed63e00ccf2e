"""Review: one self-contained HTML page on which a result can be looked at and judged."""

from usdehaze.review.page import build_review, default_page_path, write_page
from usdehaze.review.serve import ReviewServer, default_regions_path

__all__ = ["ReviewServer", "build_review", "default_page_path", "default_regions_path", "write_page"]
