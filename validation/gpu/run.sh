#!/usr/bin/env bash
# Checks, speed and prior training on a GPU machine that has PyTorch and this repository alone (no monai, no pydicom):
#   validation/gpu/run.sh --out DIR [--minutes 9] [--device cuda]
# Everything of worth lands in DIR: results.json, tissue.safetensors/.json, haze.safetensors/.json.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" "$root/validation/gpu/run.py" "$@"
