"""The dataset on disk: layout, documents, engines, writer, checks and repairs."""
