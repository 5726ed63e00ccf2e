"""Where the fan lies in a frame, and how frames get to the priors' grid and back."""

from .grid import Mapper, ModelGrid, make_mapper
from .screen import blank_screen, image_mask
from .sector import find_sector, sector_mask

__all__ = ["Mapper", "ModelGrid", "blank_screen", "find_sector", "image_mask", "make_mapper", "sector_mask"]
