from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: twice
short_description: words doubled
description: words doubled
options:
  _terms: {description: words, required: true}
"""


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return [str(one) * 2 for one in terms]
