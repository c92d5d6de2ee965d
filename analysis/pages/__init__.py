"""What people read: reports and pages in HTML, with their CSV files."""
