#!/usr/bin/env bash
# Checks, speed and prior training on a GPU machine that has PyTorch and this repository alone (no monai, no pydicom):
#   validation/gpu/run.sh --out DIR [--minutes 9] [--device cuda]
# Everything of worth lands in DIR: results.json and four priors, tissue, haze, tissue-ncsnv2 and haze-ncsnv2, each with
# its card (.safetensors, .json).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" "$root/validation/gpu/run.py" "$@"
