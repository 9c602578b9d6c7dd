"""Joins words by a sign."""

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: site_words
options:
  _terms: {description: words}
  sign: {description: between them, default: '-', type: str}
"""


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        if "none" in terms:
            raise AnsibleError("there is no such word")
        return [self.get_option("sign").join(str(word) for word in terms), len(terms)]
