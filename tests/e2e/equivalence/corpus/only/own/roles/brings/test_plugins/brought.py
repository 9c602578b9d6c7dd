class TestModule:
    def tests(self):
        return {"odd_by": lambda value, by=2: value % by == 1}
