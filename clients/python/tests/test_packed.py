"""Installs the packed client in an empty environment, without a network, and runs the first example of its README there."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv

from server import PASSWORD, Server

PACKED = pathlib.Path(os.environ["PACKED"])
VERSION = "0.1.0"


def test_packed_client_runs_the_first_example_of_its_readme(server: Server, tmp_path: pathlib.Path) -> None:
    wheel = PACKED / f"isobar_client-{VERSION}-py3-none-any.whl"
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True)
    # Its dependencies are those of the tests; that it names them all is seen by what it names being enough.
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    installed = site / "isobar_client"
    assert (installed / "py.typed").exists()
    readme = (site / f"isobar_client-{VERSION}.dist-info" / "METADATA").read_text()
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert example
    (tmp_path / "first.py").write_text(example[1])
    environment = {"ISOBAR_URL": server.url, "ISOBAR_PASSWORD": PASSWORD}
    said = subprocess.run(
        [python, "first.py"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert re.fullmatch(r".*\{'temp': 9\.1\}\n.*\{'temp': 4\.2\}\n", said.stdout), said.stdout


def test_sources_are_packed_whole() -> None:
    with tarfile.open(PACKED / f"isobar_client-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "pyproject.toml", "src/isobar_client/py.typed", "src/isobar_client/v2/client.py"}
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name]
