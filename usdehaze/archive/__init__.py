"""Whole archives on Ray Data: scans in folders or object stores, a pool of workers, a manifest in Parquet."""
