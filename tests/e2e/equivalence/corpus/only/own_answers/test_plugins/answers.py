class TestModule:
    def tests(self):
        return {"loud": lambda value: value.isupper(), "longer_than": lambda value, count: len(value) > count}
