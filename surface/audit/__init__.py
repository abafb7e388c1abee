"""Checks of the tasks themselves: that they are sound, independent and as varied as promised."""
