"""The stranger's door: another distribution generates, checks, installs and runs on its own.

The example in docs/examples/acme-deploy is built and installed for real, beside the wheel of dsh,
in an environment that has neither. What these need comes from the environment of the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

import pytest
from attrs import frozen

from codegen.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "acme-deploy"
GENERATE = ["--schema", "./schema", "--package", "acme_deploy.catalog"]
SITE = "lib/python{}.{}/site-packages".format(*sys.version_info[:2])


@frozen
class House:
    """The environment of a stranger: its Python, and the example's sources with nothing built."""

    python: Path
    example: Path
    wheels: dict[str, Path]

    def run(
        self, *arguments: str, code: int = 0, environ: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Run its Python in the example's folder; gives what was printed."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.example,
            env={**clean(), **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def clean() -> dict[str, str]:
    """The environment without what would lead Python to the sources here."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MYPYPATH"}
    return {key: value for key, value in os.environ.items() if key not in hidden}  # noqa: TID251


def wheel(source: Path, target: Path) -> Path:
    """Build the wheel of a folder with what is installed here."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--wheel-dir", str(target), str(source)]
    done = subprocess.run(command, env=clean(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Both wheels, installed in a new environment."""
    root = tmp_path_factory.mktemp("stranger")
    example = root / "acme-deploy"
    shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    wheels = {
        "dsh": wheel(ROOT, root / "dsh"),
        "acme": wheel(example, root / "acme"),
    }
    command = [sys.executable, "-m", "venv", "--without-pip", str(root / "env")]
    subprocess.run(command, check=True, capture_output=True)
    site = root / "env" / SITE
    command = [sys.executable, "-m", "pip", "--python", str(root / "env" / "bin" / "python")]
    command += ["install", "--quiet", "--no-deps", "--no-index", *map(str, wheels.values())]
    subprocess.run(command, env=clean(), check=True, capture_output=True)
    # A path in a .pth file is searched last: dsh itself comes from its wheel.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    for name in ("build", "dist"):
        shutil.rmtree(example / name, ignore_errors=True)
    return House(root / "env" / "bin" / "python", example, wheels)


@pytest.mark.holds("CAT16")
def test_both_come_from_their_wheels(house: House) -> None:
    code = "import dsh, dsh_codegen, acme_deploy; print(dsh.__file__, dsh_codegen.__file__)"
    told = house.run("-c", f"{code}; print(acme_deploy.__file__)")
    assert len(told.split()) == 3
    assert all(path.startswith(str(house.python.parents[1])) for path in told.split())
    names = zipfile.ZipFile(house.wheels["dsh"]).namelist()
    assert {"dsh/view/page/page.html", "dsh/view/page/page.css"} <= set(names)
    assert {
        "dsh_codegen/__main__.py",
        "dsh_codegen/templates/module.py.j2",
        "dsh_codegen/schema/domains.yaml",
        "dsh_codegen/schema/events/turn.yaml",
        "dsh_codegen/schema/catalog.lock.json",
    } <= set(names)


@pytest.mark.holds("CAT16")
def test_it_generates_what_is_committed(house: House) -> None:
    generate = ("-m", "dsh_codegen", "generate", *GENERATE)
    assert house.run(*generate, "--check") == ""
    package = house.example / "src/acme_deploy/catalog"
    committed = {path.name: path.read_bytes() for path in package.glob("*.py")}
    shutil.rmtree(package)
    told = house.run(*generate, "--check", code=1)
    assert "codegen: missing: src/acme_deploy/catalog/codec.py" in told
    assert told.splitlines()[-1] == (
        "codegen: not as the schema says; run: "
        "python -m dsh_codegen generate --schema ./schema --package acme_deploy.catalog"
    )
    house.run(*generate, code=1)
    assert {path.name: path.read_bytes() for path in package.glob("*.py")} == committed
    assert house.run(*generate) == ""


@pytest.mark.holds("CAT16")
def test_it_type_checks_against_the_wheel(house: House) -> None:
    mypy = ("-m", "mypy", "--no-error-summary", "--cache-dir", str(house.example / ".mypy"))
    assert house.run(*mypy) == ""
    wrong = house.example / "tests" / "wrong.py"
    wrong.write_text(WRONG, "utf-8")
    told = house.run(*mypy, str(wrong), code=1)
    wrong.unlink()
    assert [line.partition("error: ")[2] for line in told.splitlines() if "error" in line] == [
        (
            'Argument "outcome" to "Finished" has incompatible type "Literal[\'gone\']"; '
            "expected \"Literal['done', 'failed']\"  [arg-type]"
        ),
        'Module has no attribute "FINISH"; maybe "FINISHED"?  [attr-defined]',
    ]


WRONG = """\
from acme_deploy.catalog import DeployTarget, acme_deploy as deploy

here = DeployTarget(name="here", command="make")
deploy.Finished(call_id="c", target=here, outcome="gone", total=1)
deploy.FINISH
"""


@pytest.mark.holds("CAT16")
def test_its_tests_run_there(house: House) -> None:
    told = house.run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in told


@pytest.mark.holds("CAT16")
def test_dsh_finds_the_plugin_and_its_catalog(house: House) -> None:
    told = house.run("-m", "dsh.cli", "catalog", "show", "acme.deploy/finished")
    assert told.startswith("acme.deploy/finished  (durable)\n")
    assert "acme.deploy/announced" in house.run("-m", "dsh.cli", "catalog", "list")


@pytest.mark.holds("CAT16")
def test_a_run_of_dsh_logs_its_event(house: House) -> None:
    """The demo's script runs `wc -w …`, which counts as a deployment here."""
    rows = house.example / "dsh.yml"
    rows.write_text(
        "- name: acme-deploy\n  config: {targets: [{name: words, command: wc -w}]}\n", "utf-8"
    )
    run = ("-m", "dsh.cli", "run", "--profile", "demo", "--config", str(rows), "--json")
    told = house.run(*run, environ={"DSH_HOME": str(house.example / "home")})
    (line,) = [line for line in told.splitlines() if '"acme.deploy/finished"' in line]
    stored = cast("dict[str, object]", json.loads(line))
    assert stored["owner"] == "acme-deploy@1.0.0"
    data = cast("dict[str, object]", stored["data"])
    assert data["target"] == {"name": "words", "command": "wc -w"}
    assert (data["outcome"], data["total"]) == ("done", 1)


# What a stranger's schema may not say.


class Generate(Protocol):
    """Generates an edited schema."""

    def __call__(
        self, old: str, new: str, *, file: str = "deploy.yaml", more: str = ""
    ) -> tuple[int, str]: ...


@pytest.fixture
def generate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Generate:
    """Generate the example's schema with one text replaced; exit code and what was said."""
    root = tmp_path / "acme-deploy"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("__pycache__", ".*"))

    def run(old: str, new: str, *, file: str = "deploy.yaml", more: str = "") -> tuple[int, str]:
        path = root / "schema" / file
        text = path.read_text("utf-8")
        assert text.count(old) >= 1
        path.write_text(text.replace(old, new, 1) + more, "utf-8")
        options = ["--schema", str(root / "schema"), *GENERATE[2:]]
        code = main(["generate", *options, "--check"])
        path.write_text(text, "utf-8")
        return code, capsys.readouterr().err

    return run


@pytest.mark.holds("CAT16")
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (
            "waterfall",
            "    default: No.\n    answers: {A: {doc: A., fields: {}}, B: {doc: B., fields: {}}}\n",
        ),
        ("serial", "    default: No.\n    none: No.\n    answers: {Go: {doc: Go., fields: {}}}\n"),
        ("stream", "    default: No.\n    chunk: DeployTarget\n"),
        ("parallel", "    emit: any\n"),
    ],
)
def test_phases_of_the_loop_are_closed(generate: Generate, kind: str, more: str) -> None:
    event = (
        f'  gate:\n    kind: {kind}\n    since: "1.0"\n    emitter: plugin/acme-deploy\n'
        "    scope: global\n    errors: propagate\n    purpose: A gate.\n    payload: {}\n"
    )
    code, said = generate("domain:", "domain:", more=event + more)
    assert code == 2
    assert said.splitlines()[0] == (
        f"schema/deploy.yaml:29:3: loop-phase-closed: acme-deploy declares acme.deploy/gate, "
        f"a {kind} event; phases of the loop are a reviewed change of schema/; a plugin declares "
        "durable events and notices"
    )


@pytest.mark.holds("CAT16")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "domain: acme.deploy",
            "domain: turn",
            (
                "schema/deploy.yaml:5:3: foreign-domain: acme-deploy has the domain 'turn'; "
                "write one with a dot, as in acme.turn"
            ),
        ),
        (
            "    emit: any\n    ignorable",
            "    emit: core\n    ignorable",
            (
                "schema/deploy.yaml:5:3: emit-follows-emitter: acme.deploy/finished is emitted by "
                "plugin/acme-deploy, and emit is core; write emit: any"
            ),
        ),
        (
            "    ignorable: true\n",
            "    surface: true\n",
            (
                "schema/deploy.yaml:5:3: loop-phase-closed: acme-deploy declares "
                "acme.deploy/finished as a surface event; only the core adds messages for the "
                "model; drop surface:"
            ),
        ),
        (
            "emitter: plugin/acme-deploy",
            "emitter: loop",
            (
                "schema/deploy.yaml:5:3: loop-phase-closed: acme.deploy/finished of acme-deploy "
                "has the emitter loop; write emitter: plugin/acme-deploy"
            ),
        ),
    ],
    ids=["core-domain", "core-emit", "surface", "emitter"],
)
def test_what_is_the_core_s_stays_the_core_s(
    generate: Generate, old: str, new: str, told: str
) -> None:
    code, said = generate(old, new)
    assert code == 2
    assert told in said.splitlines()


@pytest.mark.holds("CAT16")
def test_names_of_the_core_are_refused_with_both_owners(generate: Generate) -> None:
    more = "  Usage: {doc: Mine., fields: {n: {type: string, doc: N.}}}\n"
    code, said = generate("records:", "records:", file="records.yaml", more=more)
    assert code == 2
    assert "duplicate-name: 'Usage' is a type of the core; choose another name" in said


@pytest.mark.holds("CAT16")
def test_a_stranger_s_lock_is_held_too(generate: Generate) -> None:
    code, said = generate("total: {type: int, unit: deployments,", "sum: {type: int, unit: pieces,")
    assert code == 1
    assert "schema/deploy.yaml:5:3: version-missing: acme.deploy/finished has version 1" in said
    assert "add to schema/changes.yaml, under changes:, and say why:" in said
    assert '  since: "1.0.0"\n' in said


@pytest.mark.holds("CAT16")
def test_a_hand_made_package_is_not_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "acme-deploy"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    mine = root / "src/acme_deploy/catalog/mine.py"
    mine.write_text("MINE = 1\n", "utf-8")
    with pytest.raises(SystemExit, match=r"catalog/mine\.py is not generated"):
        main(["generate", "--schema", str(root / "schema"), *GENERATE[2:]])
    assert mine.exists()
    (root / "pyproject.toml").unlink()
    assert main(["generate", "--schema", str(root / "schema"), *GENERATE[2:]]) == 2
    assert "or give --owner NAME@VERSION" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", "--schema", str(root / "nowhere"), *GENERATE[2:]])
    assert "no such folder" in capsys.readouterr().err
