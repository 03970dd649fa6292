"""The format of numbers in the report and the claims."""

import math


def rounded_share(share: float) -> float:
    """Round a share to a tenth of a percent, halves upwards, alike in texts and figures.

    >>> rounded_share(0.1215), share_text(0.1215)
    (0.122, '12.2%')
    """
    return math.floor(share * 1000 + 0.5) / 1000 if math.isfinite(share) else share


def share_text(share: float) -> str:
    """Write a share in percent."""
    return f"{rounded_share(share):.1%}"


def power_text(number: int) -> str:
    """Write a large whole number by its leading digit and a power of ten.

    >>> power_text(4_100_000), power_text(96), power_text(1_024)
    ('4·10^6', '96', '1,024')
    """
    if number < 1_000_000:
        return f"{number:,}"
    digit, power = f"{number:.0e}".split("e+")
    return f"{digit}·10^{int(power)}"


def difference_text(difference: float) -> str:
    """Write a difference, a tiny one with its power of ten.

    >>> difference_text(1.14), difference_text(2.98e-6)
    ('1.1', '3.0e-06')
    """
    return f"{difference:.2g}" if difference >= 0.01 else f"{difference:.1e}"


def range_text(least: float, most: float) -> str:
    """Write a range, or a single number if both ends read alike."""
    low, high = difference_text(least), difference_text(most)
    return low if low == high else f"{low} to {high}"
