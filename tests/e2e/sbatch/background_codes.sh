#!/bin/bash
#SBATCH --job-name=background-codes
#SBATCH --ntasks=3
#SBATCH --nodes=1
# steps side by side, each of whose codes the script collects, as pools of short runs do
#= state COMPLETED
#= line step 1 ended 1
#= line step 2 ended 2
#= line step 3 ended 0
#= line 0 left
steps=()
for code in 1 2 0; do
    srun --ntasks=1 --nodes=1 --exact sh -c "exit $code" 2>/dev/null &
    steps+=($!)
done
for n in 1 2 3; do
    wait "${steps[n-1]}"
    echo "step $n ended $?"
done
echo "$(jobs -p | wc -l) left"
