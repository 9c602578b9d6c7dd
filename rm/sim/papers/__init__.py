"""The papers' results: one file per paper, found by its name, measured over seeds, beside what was printed.

To add a paper `some-name` (hyphens in the name stand for underscores in the file):

1. `rm/sim/papers/some_name.py` (or a package of that name) defines `PAPER = Paper(...)`, see
   `frame/paper.py`. Its `measure(part, seed)` runs one part of the scenario with one seed and
   yields `Sample(figure, case, metric, value)` for the table and `Series(figure, case, x, y)` for the
   plot alone. It is called in other processes: it must be a function of its module, draw only
   from a generator seeded with `seed`, and depend on nothing else. What compares two cases is
   computed within one seed, so that it is paired: in `measure`, or in `derive(samples)`, which
   gets all samples of one seed, whichever parts they came from. Work that takes longer than
   some seconds should be cut into `parts`, which run in parallel.
2. `rm/sim/papers/expected/some-name.toml` has one `[[row]]` per (figure, case, metric): the
   published value and its place in the paper, the range within which the result is
   said to be reproduced, and why this range. See `frame/expected.py`.
3. Numbers that are no measurement (model sizes, link rates, penalties) go to `parameters.toml`, each with
   its source, and are read by `parameters("some-name")`. A number that two papers use stands
   there once, in a section of its own.
4. `docs/papers/some-name.md` has the lines `<!-- results -->` and `<!-- end of results -->`;
   `rmx sim paper some-name --update-docs` writes the table between them, and draws
   `docs/images/papers/some-name.svg` with the paper's `plot`.

Modules and packages whose names begin with an underscore are no papers: parts of a scenario
too large for one file go there. Ranges are set from the paper before measuring, never fitted;
a result outside its range stays, and the page says why.
"""
