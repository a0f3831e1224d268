"""What a correct result is: the float64 copy, rounding, and the tolerance table."""
