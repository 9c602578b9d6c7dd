#!/bin/bash
#SBATCH --nodes=2 --ntasks=2
#SBATCH --constraint="[nvme|slow]"
#= state COMPLETED
#= line same kind
hosts=$(scontrol show hostnames | sort | tr '\n' ' ')
case $hosts in
"z1h1 z1h2 " | "z1h1 z1h3 ") echo "same kind" ;;
*) echo "mixed: $hosts" ;;
esac
