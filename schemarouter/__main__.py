"""``python -m schemarouter``."""

from schemarouter.cli.app import main

if __name__ == "__main__":
    main()
