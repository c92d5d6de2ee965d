"""The runs of a plan as a Snakemake workflow: simulate, extract records, report."""
