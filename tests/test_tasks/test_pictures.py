"""The pictures of docs/packing.md, docs/mixing.md and docs/tokenizers.md are what the code draws now."""

import importlib

import pytest


@pytest.fixture(params=["packing", "mixing", "tokenizers"])
def drawing(request, checkout, monkeypatch):
    """A page's text, and the script that draws its pictures."""
    monkeypatch.syspath_prepend(str(checkout / "docs"))
    page = (checkout / "docs" / f"{request.param}.md").read_text(encoding="utf-8")
    return page, importlib.import_module(f"draw_{request.param}")


@pytest.mark.slow
def test_the_pictures_are_up_to_date(checkout, drawing):
    _, script = drawing
    svg = importlib.import_module("drawing").svg
    for name, draw in script.PICTURES.items():
        kept = (checkout / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert kept == svg(draw()), f"run: python docs/{script.__name__}.py"


def test_the_page_shows_them_all(drawing):
    page, script = drawing
    assert script.PICTURES
    assert all(f"(pictures/{name})" in page for name in script.PICTURES)
