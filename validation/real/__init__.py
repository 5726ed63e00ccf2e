"""Every figure of regions on real frames."""
