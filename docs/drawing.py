"""The few shapes that the project's pictures are made of, as SVG."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

LINE, TEXT = "#ffffff", "#444444"
Points: TypeAlias = Sequence[tuple[float, float]]


def svg(width: float, height: float, parts: list[str]) -> str:
    """Return a whole picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="11">'
    )
    background = f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Return a rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" '
        f'stroke="{LINE}" stroke-width="1"/>'
    )


def words(x: float, y: float, text: str, anchor: str = "start", fill: str = TEXT) -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{text}</text>'


def area(points: Points, fill: str) -> str:
    """Return a filled polygon."""
    return f'<path d="M{_path(points)}Z" fill="{fill}"/>'


def line(points: Points, stroke: str, width: float = 1.0) -> str:
    """Return a line from point to point."""
    return f'<path d="M{_path(points)}" fill="none" stroke="{stroke}" stroke-width="{width:g}"/>'


def dots(points: Points, fill: str, size: float) -> str:
    """Return round dots of one colour."""
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    return f'<path d="{path}" stroke="{fill}" stroke-width="{size:g}" stroke-linecap="round"/>'


def _path(points: Points) -> str:
    """The points one after the other, each once where it stands several times in a row."""
    written = [f"{x:.1f} {y:.1f}" for x, y in points]
    return "L".join(point for k, point in enumerate(written) if not k or point != written[k - 1])


def write(pictures: Mapping[str, Callable[[], str]], folder: Path) -> None:
    """Write pictures into a folder, by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        (folder / name).write_text(draw(), encoding="utf-8")
