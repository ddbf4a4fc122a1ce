"""Formulas as people read them on a phone."""

import time

import pytest

from bot.signal.formulas import in_unicode


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (r"x^2", "x²"),
        (r"\frac{1}{2}", "½"),
        (r"\frac{a+b}{c}", "(a+b)/c"),
        (r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}", "x = (-b ± √(b²-4ac))/(2a)"),
        (r"\sum_{i=1}^{n} i", "∑ᵢ₌₁ⁿ i"),
        (r"\int_0^\infty e^{-x}\,dx = 1", "∫₀^∞e⁻ˣ dx = 1"),
        (r"\text{speed in km} = \dfrac{d}{t}", "speed in km = d/t"),
        (r"\left( \frac{x}{y} \right)^{n+1}", "( x/y)ⁿ⁺¹"),
        (r"\lim_{x \to 0} \sin x", "lim_(x → 0) sin x"),
        (r"\sqrt[3]{8} \times 90^\circ", "∛8 \N{MULTIPLICATION SIGN} 90°"),
        (r"x \in \mathbb{R}, 50\%", "x ∈ \N{DOUBLE-STRUCK CAPITAL R}, 50%"),
        (r"\bar{x} = \frac{1}{N}\sum_i x_i", "x\u0304 = 1/N ∑ᵢ xᵢ"),
        (r"f'(x) = CO_2", "f\N{PRIME}(x) = CO₂"),
    ],
)
def test_common_formula_is_shown_with_unicode_signs(formula: str, shown: str) -> None:
    assert in_unicode(formula) == shown


@pytest.mark.parametrize(
    "formula",
    [r"\begin{pmatrix}1&2\end{pmatrix}", r"\vec{vw}", "x^", r"\frac1", "{", "}", "\\", "", "^^"],
)
def test_formula_with_anything_unknown_stays_as_it_was(formula: str) -> None:
    assert in_unicode(formula) is None


@pytest.mark.parametrize("part", ["{", "^{", r"\frac{", r"\sqrt[", r"\sqrt", "x^2", r"\text"])
def test_hostile_formula_ends_soon(part: str) -> None:
    began = time.process_time()
    in_unicode(part * 100)
    assert time.process_time() - began < 0.5
