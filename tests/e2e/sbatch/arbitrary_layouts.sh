#!/bin/bash
#SBATCH -N3 --ntasks-per-node=2 -m cyclic
#= state COMPLETED
#= line whole job: 0 1 2 0 1 2
#= line block: 0 0 1 1 2 2
#= line backwards: 2 2 1 0
#= line shortened: 2 0
#= line plane by variable: 0 0 1 1 2 2
#= line packed: 0 0 1
#= line listed with stars: 1 1 0
#= line list before block: 2 2
#= line too many: 1
#= line other host: 1
mapfile -t H < <(scontrol show hostnames)
where() {
    srun "$@" -l bash -c 'echo $SLURMD_NODENAME' 2>/dev/null | sort -n |
        sed "s/.*: //;s/${H[0]}/0/;s/${H[1]}/1/;s/${H[2]}/2/" | tr '\n' ' ' | sed 's/ $//'
}
echo "whole job: $(where)"
echo "block: $(where -m block:cyclic)"
echo "backwards: $(where -m arbitrary -w ${H[2]},${H[2]},${H[1]},${H[0]})"
echo "shortened: $(where -n2 -m arbitrary -w ${H[2]},${H[0]},${H[1]})"
echo "plane by variable: $(SLURM_DIST_PLANESIZE=2 where -m plane)"
echo "packed: $(where -N2 -n3 -m block,Pack)"
printf '# comment\n%s*2\n%s\n' ${H[1]} ${H[0]} > stars-$SLURM_JOB_ID
echo "listed with stars: $(SLURM_HOSTFILE=stars-$SLURM_JOB_ID where -n3)"
printf '%s,%s\n' ${H[2]} ${H[2]} > commas-$SLURM_JOB_ID
echo "list before block: $(SLURM_HOSTFILE=commas-$SLURM_JOB_ID where -m block)"
SLURM_HOSTFILE=commas-$SLURM_JOB_ID srun -n5 true 2>/dev/null
echo "too many: $?"
srun -m arbitrary -w nowhere true 2>/dev/null
echo "other host: $?"
