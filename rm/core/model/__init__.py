"""The types: jobs, hosts, networks, traffic, alignments, reasons, the snapshot that policies see."""
