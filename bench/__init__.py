"""Speed figures: `python -m bench`, or `make bench`. Nothing here is part of the product."""
