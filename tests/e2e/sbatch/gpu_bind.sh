#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --gpus-per-node=2
#= state COMPLETED
#= line single 2 different, each sees 1
#= line mapped the other way round
#= line second host of 1: srun: error: .*
seen() { srun "$@" -l bash -c 'echo $CUDA_VISIBLE_DEVICES' | sort; }
single=$(seen --gpu-bind=single:1)
mapped=$(seen --gpu-bind=map_gpu:1,0)
echo "single $(cut -d' ' -f2 <<< "$single" | sort -u | wc -l) different, each sees $(awk -F, 'NR == 1 { print NF }' <<< "$single")"
test "$(cut -d' ' -f2 <<< "$single" | tac)" = "$(cut -d' ' -f2 <<< "$mapped")" && echo "mapped the other way round"
echo "second host of 1: $(srun --relative=1 -N1 hostname 2>&1)"
