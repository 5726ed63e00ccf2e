"""HDF5 in: files that nobody vouches for, opened with care, and the layouts of frames in them."""
