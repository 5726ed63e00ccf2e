#!/usr/bin/env bash
# Checks, speed, training and evaluation on a GPU machine that has PyTorch, NumPy, SciPy, safetensors and this
# repository alone (no monai, no pydicom, no h5py):
#   validation/gpu/run.sh --out DIR [--minutes 9] [--device cuda]
# Everything of worth lands in DIR: results.json, the learned posterior, and the paper's priors, tissue-ncsnv2 and
# haze-ncsnv2, each with its card (.safetensors, .json). How to take them over: run.sh --help.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" -m validation.gpu.run "$@"
