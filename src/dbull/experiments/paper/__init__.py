"""The tables and figures of the paper, made here from result folders, beside what the paper printed."""
