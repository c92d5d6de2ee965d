"""Reports and pages in HTML, with their CSV files."""
