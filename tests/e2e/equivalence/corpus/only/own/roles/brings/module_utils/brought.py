def turned(text):
    return text[::-1]
