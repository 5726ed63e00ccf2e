"""HDF5 in: files that nobody vouches for, opened with care, and the layouts of frames in them."""

from usdehaze.io.hdf5.read import Hdf5Scan

__all__ = ["Hdf5Scan"]
