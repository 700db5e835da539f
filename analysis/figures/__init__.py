"""The figures of studies: each module says what it claims, draws it, and explains it in a caption."""
