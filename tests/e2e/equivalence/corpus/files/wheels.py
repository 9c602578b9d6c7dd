"""Makes small wheels in the working directory, the same bytes each time."""

import zipfile

MOMENT = (2026, 1, 1, 0, 0, 0)


def write(name, version):
    stem, info = f"{name}-{version}", f"{name}-{version}.dist-info"
    texts = {
        f"{name}.py": f"VERSION = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    texts[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in texts.items():
            wheel.writestr(zipfile.ZipInfo(path, MOMENT), text)


for one, versions in (("rm_lamp", ("1.0", "1.5", "2.0")), ("rm_candle", ("0.5",))):
    for version in versions:
        write(one, version)
