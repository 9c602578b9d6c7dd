# Thirty and more rules for tests/e2e/test_slurm_clients.py: each third one fails at its first attempt, one always.
N = 28
TAKEN = [n for n in range(N) if n % 3 == 1]


rule all:
    input: "sum.txt"


for n in range(N):
    rule:
        name: f"count{n}"
        output: f"counts/{n}.txt"
        input: f"counts/{n - 10}.txt" if n >= 10 else []
        params: n=n, fails=int(n in TAKEN)
        retries: 2
        resources: mem_mb=10, runtime=5
        shell:
            """
            if [ {params.fails} = 1 ] && [ ! -e counts/{params.n}.tried ]; then
                touch counts/{params.n}.tried
                exit 3
            fi
            echo {params.n} > {output}
            """


rule sum:
    output: "sum.txt"
    input: expand("counts/{n}.txt", n=range(N))
    resources: mem_mb=10, runtime=5
    shell: "cat {input} | paste -sd+ | sed 's/.*/echo $((&))/' | sh > {output}"


rule broken:
    output: "never.txt"
    resources: mem_mb=10, runtime=5
    shell: "exit 5"
