"""Shapes that know their area.

    Lengths are in metres, areas in square metres.
"""


class Square:
    """A square.

    Its sides are equally long, whichever way
    one looks at it.
    """

    def __init__(self, side):
        self.side = side

    def area(self):
        """Return the area: side times side."""
        return self.side**2


def largest(shapes):
    """Return the shape with the largest area; of equal ones the first."""
    return max(shapes, key=lambda shape: shape.area())


names = {
    "square": "A square has four\nequal sides.",
    "circle": "A circle is round,\nand its area is \u03c0 r\u00b2.",
}
