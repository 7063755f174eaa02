#!/bin/sh
# embed.sh SYMBOL IN OUT.S: an assembler file that holds the bytes of IN between SYMBOL and SYMBOL_end
set -eu
{
    echo "    .section .rodata"
    echo "    .global $1, $1_end"
    echo "    .balign 64"
    echo "$1:"
    echo "    .incbin \"$(realpath "$2")\""
    echo "$1_end:"
    echo "    .byte 0"
    echo "    .section .note.GNU-stack,\"\",%progbits"
} >"$3"
