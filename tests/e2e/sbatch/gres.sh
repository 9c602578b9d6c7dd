#!/bin/bash
#SBATCH -N1 -n4 --gres=gpu:1
#= state COMPLETED
#= line once with 1 gpu
#= line [0-3]: sees 1
#= once once.*
count='awk -F, "{ print NF }"'
echo "once with $(echo $CUDA_VISIBLE_DEVICES | awk -F, '{ print NF }') gpu"
srun -l bash -c 'echo "sees $(echo $CUDA_VISIBLE_DEVICES | tr , "\n" | wc -l)"'
