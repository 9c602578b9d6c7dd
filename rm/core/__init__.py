"""The pure core: state + events + now -> plan. No clocks, randomness, sockets or third parties."""
