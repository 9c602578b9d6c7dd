def loud(value, times=1):
    if not value:
        raise ValueError("there is nothing to say")
    return value.upper() + "!" * times


def flatten(value):
    return "the role's own"


class FilterModule:
    def filters(self):
        return {"loud": loud, "flatten": flatten}
