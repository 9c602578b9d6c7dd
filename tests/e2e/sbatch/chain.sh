#!/bin/bash
#SBATCH --job-name=report
#= submit a=$(sbatch --parsable --wrap 'echo data > chain.txt') && b=$(sbatch --parsable -d afterok:$a --wrap 'grep data chain.txt && exit 4') && c=$(sbatch --parsable -d afterok:$b --wrap 'echo never > never.txt') && sbatch --parsable -d afterany:$c,afternotok:$b chain.sh
#= state COMPLETED
#= line data, and no never\.txt
test ! -e never.txt && echo "$(cat chain.txt), and no never.txt"
