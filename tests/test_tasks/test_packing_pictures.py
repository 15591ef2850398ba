"""The pictures of docs/packing.md are what the code draws now."""

import importlib.util

import pytest


@pytest.fixture(scope="module")
def drawing(checkout):
    spec = importlib.util.spec_from_file_location("draw_packing", checkout / "docs" / "draw_packing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_up_to_date(checkout, drawing):
    for name, draw in drawing.PICTURES.items():
        kept = (checkout / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert kept == draw(), "run: python docs/draw_packing.py"


def test_the_page_shows_them_all(checkout, drawing):
    page = (checkout / "docs" / "packing.md").read_text(encoding="utf-8")
    assert all(f"(pictures/{name})" in page for name in drawing.PICTURES)
