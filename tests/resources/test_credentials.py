"""Credentials: an address with a secret in it is refused, and the file that may hold one is taken apart."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from slipway.resources import credentials
from slipway.resources.credentials import Address, PublicAddress

pytestmark = pytest.mark.pure


class Settings(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)
    where: PublicAddress


@pytest.mark.parametrize(
    "uri",
    [
        "http://user:PLANTED@host:5000",
        "https://PLANTED@host",
        "postgresql+psycopg2://user:PLANTED@host/mlflow",
        "postgresql:///mlflow?user=a&password=PLANTED",
        "https://host/path?access_token=PLANTED",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_shown(uri: str):
    with pytest.raises(ValidationError, match="write it into a file that only Slipway reads") as refused:
        Settings(where=uri)
    assert "PLANTED" not in str(refused.value)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/a/folder@home",
        "s3://bucket/prefix",
        "http://mlflow:5000",
        "sqlite:////data/mlflow.db",
        "postgresql+psycopg2:///?service=mlflow",
        "http://host/a@b",
    ],
)
def test_an_address_without_a_secret_is_kept(uri: str):
    assert Settings(where=uri).where == uri


def test_user_and_password_are_read_beside_the_uri(tmp_path: Path):
    (tmp_path / "uri").write_text("https://me:p%40ss%3Aword@mlflow.example:8443/prefix\n")
    read = credentials.read_address(tmp_path / "uri")
    assert read == Address("https://mlflow.example:8443/prefix", "me", "p@ss:word")
    assert "word" not in repr(read)


def test_a_server_without_users_has_no_credentials(tmp_path: Path):
    (tmp_path / "uri").write_text("http://mlflow:5000\n")
    assert credentials.read_address(tmp_path / "uri") == Address("http://mlflow:5000")


@pytest.mark.parametrize("uri", ["postgresql://u:PLANTED@host/db", "https://host/?token=PLANTED"])
def test_a_secret_that_its_client_would_show_is_refused_in_a_file_too(tmp_path: Path, uri: str):
    (tmp_path / "uri").write_text(uri)
    with pytest.raises(ValueError, match=f"{tmp_path}/uri: found an address that would show its secret") as refused:
        credentials.read_address(tmp_path / "uri")
    assert "PLANTED" not in str(refused.value)


def test_variables_that_hold_secrets_are_distinguished_from_those_that_name_files():
    names = ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "AWS_SHARED_CREDENTIALS_FILE", "NCCL_DEBUG", "KEYS"]
    assert credentials.secret_variables(names) == ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY"]
