#!/bin/bash
#= submit LR=0.1 SEED=7 sbatch --parsable --export=LR,MODE=fast export_some.sh
#= state COMPLETED
#= line LR=0\.1 SEED= MODE=fast
echo "LR=$LR SEED=$SEED MODE=$MODE"
