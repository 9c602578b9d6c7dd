"""The page: the HTTP API's answers, drawn for people.

The API's JSON (`source`) becomes plain view models (`*_view`: pure functions), and these become HTML
through the templates, which escape everything. Whatever a user may have written, a job's name above
all, passes through `text.shown` and Jinja2's autoescape.
"""
