"""Checks of the tasks themselves: sound, independent, and of the quality that is promised."""
