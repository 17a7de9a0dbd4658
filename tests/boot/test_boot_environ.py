"""The environment, keys and places."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest

from dsh.boot import ProcessEnviron, places_of, workspace
from dsh.boot.environ import EnvironCredentials
from dsh.errors import MissingCredential, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def credentials(**variables: str) -> EnvironCredentials:
    return EnvironCredentials(ProcessEnviron(variables))


@pytest.mark.holds("BO9", "case-087")
def test_a_key_shows_itself_to_reveal_alone() -> None:
    secret = credentials(KEY="sk-abc").resolve("KEY")
    assert secret.reveal() == "sk-abc"
    assert "sk-abc" not in f"{secret!r} {secret} {[secret]}"
    for copying in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not copied"):
            copying(secret)


@pytest.mark.holds("BO9", "case-087")
@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("sk-abc\n", "a line break at character 7 of 7"),
        (" sk-abc ", "white space at character 1"),
        ("Bearer sk-abc", "the word 'Bearer'"),
        ("sk-\u200babc", "a character beyond ASCII at character 4"),
        ("sk-ключ", "a character beyond ASCII at character 4"),
        ("", "KEY is empty"),
        ("sk-abc\r\nX-Evil: 1", "a line break at character 7"),
        ("sk\x00abc", "a control character at character 3"),
    ],
)
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    value: str, word: str
) -> None:
    with pytest.raises(MissingCredential) as caught:
        credentials(KEY=value).resolve("KEY")
    assert word in str(caught.value)
    for piece in ("abc", "ключ", "Evil"):
        assert piece not in str(caught.value)


@pytest.mark.holds("BO9")
def test_a_key_that_is_not_set_names_variable_and_alternative() -> None:
    with pytest.raises(MissingCredential, match="NO_SUCH is not set") as caught:
        credentials().resolve("NO_SUCH")
    assert "--profile demo" in str(caught.value)


@pytest.mark.holds("BO9")
def test_a_key_written_where_its_variable_belongs_is_not_shown() -> None:
    with pytest.raises(MissingCredential) as caught:
        credentials().resolve("sk-abc-123")
    assert "abc" not in str(caught.value)


@pytest.mark.holds("BO10", "case-087")
def test_no_child_inherits_what_looks_like_or_is_named_as_a_key() -> None:
    keys = credentials(
        A_API_KEY="1", B_TOKEN="2", C_SECRET="3", d_api_key="4", PATH="5", MY_KEY="6", OTHER="7"
    )
    keys.reserve(["MY_KEY"])
    keys.resolve("OTHER")
    assert keys.secret_names() == {
        "A_API_KEY", "B_TOKEN", "C_SECRET", "d_api_key", "MY_KEY", "OTHER",
    }  # fmt: skip


def test_variables_are_a_snapshot_that_nobody_can_change() -> None:
    variables = {"A": "1"}
    environ = ProcessEnviron(variables)
    variables["A"] = "2"
    assert (environ.get("A"), environ.get("B")) == ("1", None)
    with pytest.raises(TypeError):
        environ.variables()["A"] = "3"  # type: ignore[index]


@pytest.mark.holds("BO11")
@pytest.mark.parametrize(
    ("variables", "state", "settings"),
    [
        ({"DSH_HOME": "/d", "XDG_STATE_HOME": "/s"}, "/d", "/d/settings.yml"),
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/dsh", "/h/.config/dsh/settings.yml"),
        ({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/h/.local/state/dsh", "/c/dsh/settings.yml"),
        (
            {"XDG_STATE_HOME": "rel", "HOME": "/h"},
            "/h/.local/state/dsh",
            "/h/.config/dsh/settings.yml",
        ),
        ({"DSH_HOME": "", "HOME": "/h"}, "/h/.local/state/dsh", "/h/.config/dsh/settings.yml"),
    ],
)
def test_places_follow_the_environment(
    variables: dict[str, str], state: str, settings: str
) -> None:
    places = places_of(ProcessEnviron(variables))
    assert (str(places.state), str(places.settings)) == (state, settings)
    assert places.sessions == places.state / "sessions"


def test_a_home_given_by_the_program_stands_for_the_variable(tmp_path: Path) -> None:
    assert places_of(ProcessEnviron({"DSH_HOME": "/d"}), tmp_path).state == tmp_path


@pytest.mark.holds("BO11")
def test_a_state_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = places_of(ProcessEnviron({}), tmp_path / "file")
    with pytest.raises(UsageError, match="set DSH_HOME"):
        places.prepare()


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    places = places_of(ProcessEnviron({}), tmp_path / "state")
    places.prepare()
    assert places.sessions.stat().st_mode & 0o077 == 0


@pytest.mark.holds("BO12")
def test_a_workspace_must_be_a_directory_that_is_there(tmp_path: Path) -> None:
    assert workspace(tmp_path) == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        workspace(tmp_path / "file")
    with pytest.raises(UsageError, match="no such workspace"):
        workspace(tmp_path / "none")
