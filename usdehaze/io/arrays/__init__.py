"""Arrays in: NumPy's files, MAT-files before v7.3, NIfTI. Axes are found by the rules of the HDF5 layouts."""
