"""Other people's programs: found on this machine, or fetched as source, patched and built."""
