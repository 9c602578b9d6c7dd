#!/bin/bash
#SBATCH --job-name=scratch
#= state COMPLETED
#= line scratch had 3 files
#= line cleaned
scratch=$(mktemp -d "${TMPDIR:-/tmp}/scratch.XXXXXX")
trap 'rm -rf "$scratch"; test ! -e "$scratch" && echo cleaned' EXIT
touch "$scratch"/{a,b,c}
echo "scratch had $(ls "$scratch" | wc -l) files"
