# On the login node: `srun` by itself, with the options that people copy from scripts.
report=srun-login-report.txt
exec 3> $report
srun -Q --mpi=none -N2 -n2 --exact --cpu-bind=none -l -W 60 bash -c 'echo on $SLURM_NNODES of $SLURM_NTASKS' >&3 2> /dev/null
srun -Q -X -T 4 -n1 --wait=0 -o srun-login.txt --open-mode=append echo kept once 2> /dev/null
srun -Q -n1 -o srun-login.txt --open-mode=append echo kept twice 2> /dev/null
cat srun-login.txt >&3
printf '0 echo first %%t of two\n1 echo second %%t of two\n' > srun-login.conf
srun -Q -n2 --multi-prog srun-login.conf >&3 2> /dev/null
srun -Q -n1 --mpi=foo true 2> /dev/null
echo "srun --mpi=foo ended with $?" >&3
srun -Q -N x true 2> /dev/null
echo "srun -N x ended with $?" >&3
sbatch --parsable srun_login.sh $report
