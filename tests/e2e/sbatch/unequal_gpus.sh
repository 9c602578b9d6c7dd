#!/bin/bash
#SBATCH --nodes=2 --gpus=3
#= refused .*gpus.*
true
