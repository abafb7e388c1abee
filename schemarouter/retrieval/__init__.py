"""Retrievers, one file each: their interface (`base`), the specs that name them (`spec`) and what builds them (`registry`)."""
