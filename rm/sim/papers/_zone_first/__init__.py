"""The zone-first scenario: its testbed, TCP under loss, and what training on chosen hosts takes."""
