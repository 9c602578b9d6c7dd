"""A paper's idea, live on a lab, with its figure beside the simulated one: `rmx demo --paper NAME`."""
