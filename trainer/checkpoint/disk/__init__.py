"""A checkpoint's folder on disk: its manifest and files, and how they are written, verified, read and encrypted."""
