"""What a GPU is needed for; needs torch, numpy, scipy and safetensors alone."""
