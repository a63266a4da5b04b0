"""The colours of contenders, as people with and without a colour-vision deficiency see them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import pytest

from plimsoll_lab.report.drawing import CATEGORY
from plimsoll_lab.report.templating import asset

Colour = tuple[float, float, float]
"""Red, green and blue of linear sRGB, each from 0 to 1."""
Matrix = tuple[Colour, Colour, Colour]

SEEN: dict[str, Matrix] = {
    "every colour": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red (protanopia)": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green (deuteranopia)": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue (tritanopia)": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What a person sees who lacks one kind of cone: Machado, Oliveira and Fernandes, "A
Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE Transactions on
Visualization and Computer Graphics 15(6), 2009, severity 1.0, in linear sRGB."""
TO_XYZ: Matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
"""IEC 61966-2-1; the second row is the relative luminance of WCAG 2.2."""
WHITE = (0.9505, 1.0, 1.0890)
APART = 10.0
"""Distance in CIE 1976 L*a*b* of the nearest two colours. Two large patches side by side are told
apart from about 2.3; marks of a chart are small and lie apart. Each contender has a shape of its
own as well."""
GRAPHICS = 3.0
"""The contrast that WCAG 2.2, 1.4.11, asks for."""


def linear(hexadecimal: str) -> Colour:
    red, green, blue = (int(hexadecimal[place : place + 2], 16) / 255 for place in (1, 3, 5))

    def one(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return one(red), one(green), one(blue)


def times(matrix: Matrix, colour: Colour) -> Colour:
    x, y, z = (math.fsum(a * b for a, b in zip(row, colour, strict=True)) for row in matrix)
    return x, y, z


def lab(colour: Colour) -> Colour:
    """CIE 1976 L*a*b*."""

    def root(value: float) -> float:
        return math.cbrt(value) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29

    x, y, z = (root(value / white) for value, white in zip(times(TO_XYZ, colour), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, matrix: Matrix) -> Colour:
    red, green, blue = (min(1.0, max(0.0, each)) for each in times(matrix, linear(colour)))
    return lab((red, green, blue))


def contrast(one: str, other: str) -> float:
    dark, light = sorted(times(TO_XYZ, linear(each))[1] for each in (one, other))
    return (light + 0.05) / (dark + 0.05)


def of_the_page(name: str) -> tuple[str, ...]:
    """The values of a variable of the style sheet: on a light page, and on a dark one."""
    return tuple(re.findall(rf"--{name}: (#[0-9a-f]{{6}})", asset("page.css")))


LIGHT, DARK = zip(*(of_the_page(f"c{place}") for place in range(len(CATEGORY))), strict=True)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light page", "dark page"])
@pytest.mark.parametrize("deficiency", SEEN)
def test_no_two_contenders_look_alike(colours: Sequence[str], deficiency: str) -> None:
    """The second and the fourth were one colour to whoever sees no red."""
    shown = {each: seen(each, SEEN[deficiency]) for each in colours}
    near = {
        (one, other): round(math.dist(shown[one], shown[other]), 1)
        for one, other in itertools.combinations(colours, 2)
        if math.dist(shown[one], shown[other]) < APART
    }
    assert near == {}


def test_a_still_picture_has_the_colours_of_a_light_page_and_is_seen_on_a_dark_one() -> None:
    assert [each.lower() for each in CATEGORY] == list(LIGHT)
    papers = {name: of_the_page(name) for name in ("paper", "sheet")}
    faint = [
        (colour, paper)
        for light, dark in papers.values()
        for colours, paper in ((LIGHT, light), (LIGHT, dark), (DARK, dark))
        for colour in colours
        if contrast(colour, paper) < GRAPHICS
    ]
    assert faint == []
