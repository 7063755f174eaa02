#!/bin/sh
# fatbin.sh NVCC ROOT IN.cu OUT.fatbin DEPFILE: kernels for what is current, and an intermediate form for
# what comes later
set -eu
exec "$1" -fatbin -O3 -std=c++17 -I "$2" \
    -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 \
    -gencode=arch=compute_100,code=sm_100 -gencode=arch=compute_80,code=compute_80 \
    -MD -MF "$5" -o "$4" "$3"
