"""Record tables to one run's statistics: metrics by family, and the arithmetic behind them."""
