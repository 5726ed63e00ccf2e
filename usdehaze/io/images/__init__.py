"""Images in: single ones, stacks, and folders of them."""

from usdehaze.io.images.read import ImageFolderScan, ImageScan

__all__ = ["ImageFolderScan", "ImageScan"]
