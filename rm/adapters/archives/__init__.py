"""Results of tests to archives of others, in pScheduler's documents."""
