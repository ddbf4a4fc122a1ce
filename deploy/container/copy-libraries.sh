#!/bin/sh
# Copies the libraries of this system that the programs below IMAGE load: copy-libraries.sh IMAGE
set -eu

image=$1
find "$image" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/*' \) -exec ldd {} + |
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*\) .*/\1/p' |
    sort -u | while read -r needed; do
        case $needed in "$image"/*) ;; *) cp -L --parents "$needed" "$image" ;; esac
    done
